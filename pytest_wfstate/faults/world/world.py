"""The outside world: what does not crash with the process, such as a bank, a mail server, or a person.

A world stands in for an object. Every method call on it is one atomic effect in the trace; before each check the
object is restored to its state at the crash. It lives in the test's process: a child that is to be killed reaches it
through a pipe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from pytest_wfstate.faults.forking import loads
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import Effect
from pytest_wfstate.faults.world.state import WorldState, equal

# Special methods are looked up on the type, so a stand-in needs its own. The first only read.
_LOOKS = ("__len__", "__iter__", "__contains__", "__getitem__", "__bool__", "__eq__", "__str__", "__reversed__")
_CHANGES = ("__call__", "__setitem__", "__delitem__", "__setattr__", "__next__")
# What changes an object in place.
_IN_PLACE = {
    "__iadd__": "+=",
    "__isub__": "-=",
    "__imul__": "*=",
    "__imatmul__": "@=",
    "__itruediv__": "/=",
    "__ifloordiv__": "//=",
    "__imod__": "%=",
    "__ipow__": "**=",
    "__ilshift__": "<<=",
    "__irshift__": ">>=",
    "__iand__": "&=",
    "__ixor__": "^=",
    "__ior__": "|=",
}
_ACTS = (*_CHANGES, *_IN_PLACE, "__enter__", "__exit__", "__aenter__", "__aexit__")


class Remote(Protocol):
    """Access to the worlds from another process."""

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method there, and return its result or raise its exception."""

    def look(self, world: int, name: str, args: tuple[Any, ...] | None) -> Any:
        """Return an attribute or, with `args`, the result of a special method."""


Around = Callable[["WorldMethod", Callable[[], Any]], Any]


class Worlds:
    """The worlds of one test, in the order in which they were created."""

    def __init__(self) -> None:
        self.log: Log | None = None
        """The log of the recorder; None while nothing is recorded."""
        self.remote: Remote | None = None
        """Set in a child: where the worlds really are."""
        self.send_ack: Callable[[Any], None] | None = None
        """Set in a child that is to be killed: acknowledgements go to the test's process, not to the log."""
        self.effects: list[str] | None = None
        """The effects so far, while there is a child."""
        self.after_restart: list[Effect] | None = None
        """The effects of a check, while they are collected."""
        self.around: Around | None = None
        """Makes the calls of this process, such as those of a server that the child talks to."""
        self._worlds: list[_OutsideObject] = []

    def add(self, target: Any, save: Callable[[], Any] | None, load: Callable[[Any], None] | None) -> Any:
        """Return a stand-in for `target`.

        Raises:
            CannotCopy: its state cannot be copied.
        """
        if (save is None) != (load is None):
            raise TypeError(
                "crash.world got only one of save= and load=. Pass both: load= restores what save= returned."
            )
        world = _OutsideObject(
            len(self._worlds), target, WorldState(target, save, load), is_here=self.remote is not None
        )
        world.stand_in = _stand_in(world, self)
        self._worlds.append(world)
        return world.stand_in

    def states(self) -> list[Any]:
        """Copy the state of every world."""
        return [world.state.copy() for world in self._worlds]

    def restore(self, states: list[Any]) -> None:
        """Restore every world to what `states` returned. Worlds created since then are left alone."""
        for world, state in zip(self._worlds, states, strict=False):
            world.state.restore(state)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[list[Effect]]:
        """Collect the effects of a block, without the states that they lead to."""
        effects: list[Effect] = []
        self.after_restart = effects
        try:
            yield effects
        finally:
            self.after_restart = None

    def changed_unseen(self, states: list[Any]) -> list[str]:
        """Return a reason for each world whose state is not `states`: it was changed without its stand-in."""
        return [
            f"{world.target!r} was changed without its stand-in, which records only calls of its own methods. Make a "
            "world of the part that changes, such as crash.world(client.refunds), or change it through a method."
            for world, state in zip(self._worlds, states, strict=False)
            if not equal(world.state.copy(), state)
        ]

    def target(self, number: int) -> Any:
        """Return the object that a world stands in for."""
        return self._worlds[number].target

    def portable(self, number: int) -> bytes | None:
        """Pickle the state of a world for a child, if it can be pickled."""
        return self._worlds[number].state.portable()

    def follow(self, number: int, state: bytes | None) -> None:
        """Update a child's copy of a world, for code that reads the object itself."""
        if state is not None:
            self._worlds[number].state.restore(loads(state))

    def follow_all(self, states: list[bytes | None]) -> None:
        """Update a child's copies of all worlds."""
        for world, state in zip(self._worlds, states, strict=False):  # the workload created others
            self.follow(world.number, state)

    def all_portable(self) -> list[bytes | None]:
        """Pickle the states of all worlds for a child, where they can be pickled."""
        return [world.state.portable() for world in self._worlds]

    def read(self, number: int, name: str) -> Any:
        """Return an attribute of a world; a method records an effect when it is called."""
        target, remote = self._worlds[number].target, self._remote(number)
        if remote is not None and not callable(getattr(target, name, None)):
            return remote.look(number, name, None)
        value = getattr(target, name)
        return WorldMethod(self, number, name) if callable(value) else value

    def look(self, number: int, name: str, args: tuple[Any, ...] | None) -> Any:
        """Return an attribute or, with `args`, the result of a special method. This is not an effect."""
        remote = self._remote(number)
        if remote is not None:
            return remote.look(number, name, args)
        value = getattr(self._worlds[number].target, name)
        return value if args is None else value(*args)

    def call(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of a world, and record the effect."""
        remote = self._remote(number)
        if remote is not None:
            result = remote.call(number, name, args, kwargs)
        elif self.around is not None:
            result = self.around(WorldMethod(self, number, name), lambda: self.do(number, name, args, kwargs))
        else:
            result = self.do(number, name, args, kwargs)
        world = self._worlds[number]
        return world.stand_in if result is world.target else result

    def do(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of a world that is in this process, and record the effect."""
        world = self._worlds[number]
        method = getattr(world.target, name)
        text = _text(world.target, name, args, kwargs)
        self._at_item()
        with self.log.lock if self.log is not None else contextlib.nullcontext():
            return self._done(world, text, lambda: method(*args, **kwargs))

    def _remote(self, number: int) -> Remote | None:
        return None if self._worlds[number].is_here else self.remote

    def _done(self, world: _OutsideObject, text: str, call: Callable[[], Any]) -> Any:
        try:
            result = call()
        except BaseException as error:
            self._note(world, f"{text} raised {type(error).__name__}")
            raise
        if inspect.isawaitable(result):
            return self._awaited(world, text, result)
        self._note(world, text)
        return result

    async def _awaited(self, world: _OutsideObject, text: str, result: Awaitable[Any]) -> Any:
        try:
            value = await result
        except BaseException as error:
            self._at_item()
            self._note(world, f"{text} raised {type(error).__name__}")
            raise
        self._at_item()
        self._note(world, text)
        return value

    def _at_item(self) -> None:
        """Announce an effect: its thread may have to wait for its turn, which it must not do under the log's lock."""
        if self.log is not None:
            self.log.strands.at_item()

    def _note(self, world: _OutsideObject, text: str) -> None:
        if self.effects is not None:
            self.effects.append(text)
        if self.after_restart is not None:
            self.after_restart.append(Effect(world.number, text, where=causing_line()))
        if self.log is not None:
            where = self.log.strands.waiting_line() or causing_line()
            self.log.add(Effect(world.number, text, world.state.copy(), where))


@dataclasses.dataclass(slots=True)
class _OutsideObject:
    """An object of the outside world, its state, and its stand-in."""

    number: int
    target: Any
    state: WorldState
    is_here: bool
    """Whether it was created in a child, and exists nowhere else."""
    stand_in: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class WorldMethod:
    """A method of a world: call it, or use it to name the point before or after it."""

    worlds: Worlds
    world: int
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.worlds.call(self.world, self.name, args, kwargs)


def _stand_in(world: _OutsideObject, worlds: Worlds) -> Any:
    """Return a stand-in: its class has the special methods of the real one."""

    def act(name: str) -> Callable[..., Any]:
        return lambda _, *args, **kwargs: worlds.call(world.number, name, args, kwargs)

    def look(name: str) -> Callable[..., Any]:
        return lambda _, *args: worlds.look(world.number, name, args)

    def refuse(operator: str) -> Callable[..., Any]:
        # With only __add__, `+=` does not change the object: it binds the name to another, which is not a world.
        def refusing(_: Any, value: Any) -> Any:
            raise TypeError(
                f"`{operator} {value!r}` would not change the world {world.target!r}, but replace its stand-in by "
                "another object. Change it through a method of its own."
            )

        return refusing

    real = type(world.target)
    members: dict[str, Any] = {name: look(name) for name in _LOOKS if hasattr(real, name)}
    members |= {name: refuse(_IN_PLACE[name]) for name in _IN_PLACE if hasattr(real, f"__{name[3:]}")}
    members |= {name: act(name) for name in _ACTS if hasattr(real, name)}
    members["__getattr__"] = lambda _, name: worlds.read(world.number, name)
    members["__repr__"] = lambda _: repr(world.target)
    members["__hash__"] = object.__hash__
    members["__class__"] = property(lambda _: real)  # for isinstance
    return type(f"World[{real.__name__}]", (), members)()


def _text(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Format a call as in the source code."""
    shown = [repr(arg) for arg in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
    if name in _IN_PLACE:
        return f"{_IN_PLACE[name]} {shown[0]}"
    match name:
        case "__setitem__":
            return f"[{shown[0]}] = {shown[1]}"
        case "__delitem__":
            return f"del [{shown[0]}]"
        case "__setattr__":
            return f"{args[0]} = {shown[1]}"
        case "__call__":
            name = getattr(target, "__name__", type(target).__name__)
    return f"{name}({', '.join(shown)})"
