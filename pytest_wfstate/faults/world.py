"""The outside world: what does not crash with the process, such as a bank, a mail server, or a person.

A world stands in for an object. Every method call on it is one effect in the trace, done in full or not at all; before
each check it is put back to what it was at the crash. It lives in the test's process: a child that is to be killed
reaches it through a pipe.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.log import Log
from pytest_wfstate.faults.ops import Effect

# Special methods that are looked up on the type, so a stand-in needs its own. The first only look.
_LOOKS = ("__len__", "__iter__", "__contains__", "__getitem__", "__bool__", "__eq__", "__str__", "__reversed__")
_ACTS = ("__call__", "__setitem__", "__delitem__")


class CannotCopy(WfstateError, TypeError):
    """The state of a world cannot be kept and put back."""


class Remote(Protocol):
    """A way to a world in another process."""

    def call(self, world: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method there and give its result, or raise its exception."""

    def ack(self, value: Any) -> None:
        """Note a promise to the outside there."""


class Worlds:
    """The worlds of one test, in the order in which they were made."""

    def __init__(self) -> None:
        self.log: Log | None = None
        """Where effects are noted; None while nothing is recorded."""
        self.remote: Remote | None = None
        """Set in a child: where the worlds really are."""
        self._worlds: list[_World] = []

    def add(self, target: Any, save: Callable[[], Any] | None, load: Callable[[Any], None] | None) -> Any:
        """Give a stand-in for `target`."""
        if (save is None) != (load is None):
            raise TypeError("crash.world takes save= and load= together: one gives the state, the other puts it back.")
        world = _World(len(self._worlds), target, save, load)
        world.state()  # so that what cannot be copied is found now, and not in the middle of a run
        self._worlds.append(world)
        return _stand_in(world, self)

    def states(self) -> list[Any]:
        """Copy the state of every world."""
        return [world.state() for world in self._worlds]

    def put_back(self, states: list[Any]) -> None:
        """Put every world back to a state that `states` gave. Worlds made later are left alone."""
        for world, state in zip(self._worlds, states, strict=False):
            world.put_back(state)

    def call(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of a world, and note the effect."""
        if self.remote is not None:
            return self.remote.call(number, name, args, kwargs)
        world = self._worlds[number]
        if self.log is None:
            return getattr(world.target, name)(*args, **kwargs)
        with self.log.lock:
            try:
                result = getattr(world.target, name)(*args, **kwargs)
            finally:
                if not inspect.iscoroutinefunction(getattr(world.target, name)):
                    self._note(world, name, args, kwargs)
        return self._finish(world, name, args, kwargs, result) if inspect.isawaitable(result) else result

    async def _finish(self, world: _World, name: str, args: Any, kwargs: Any, result: Any) -> Any:
        try:
            return await result
        finally:
            self._note(world, name, args, kwargs)

    def _note(self, world: _World, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.log is not None:
            self.log.add(Effect(world.number, _text(name, args, kwargs), world.state(), self.log.line()))


class _World:
    """One object of the outside, and how to keep its state."""

    def __init__(
        self, number: int, target: Any, save: Callable[[], Any] | None, load: Callable[[Any], None] | None
    ) -> None:
        self.number = number
        self.target = target
        self._save = save
        self._load = load

    def state(self) -> Any:
        """Copy the state."""
        if self._save is not None:
            return self._save()
        held = self.target if isinstance(self.target, (list, dict, set, bytearray)) else vars(self.target)
        try:
            return copy.deepcopy(held)
        except Exception as error:
            raise CannotCopy(
                f"the state of {self.target!r} cannot be copied: {error}. crash.world keeps a copy after each effect, "
                "to put it back. Give crash.world(..., save=..., load=...) for what cannot be copied."
            ) from error

    def put_back(self, state: Any) -> None:
        """Put the state back in place, so that whoever holds the object itself sees it too."""
        if self._load is not None:
            self._load(state)
            return
        state = copy.deepcopy(state)
        if isinstance(self.target, (list, bytearray)):
            self.target[:] = state
        else:
            held = self.target if isinstance(self.target, (dict, set)) else vars(self.target)
            held.clear()
            held.update(state)


@dataclasses.dataclass(frozen=True, slots=True)
class WorldMethod:
    """A method of a world, to be called, or to name the point right before or after it."""

    worlds: Worlds
    world: int
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.worlds.call(self.world, self.name, args, kwargs)


def _stand_in(world: _World, worlds: Worlds) -> Any:
    """Make an object that passes for the world's: its class has the special methods that the real one has."""

    def act(name: str) -> Callable[..., Any]:
        return lambda _, *args, **kwargs: worlds.call(world.number, name, args, kwargs)

    def look(name: str) -> Callable[..., Any]:
        return lambda _, *args: getattr(world.target, name)(*args)

    def get(_: object, name: str) -> Any:
        value = getattr(world.target, name)
        if not callable(value):
            return value
        return WorldMethod(worlds, world.number, name)

    real = type(world.target)
    members: dict[str, Any] = {name: look(name) for name in _LOOKS if hasattr(real, name)}
    members |= {name: act(name) for name in _ACTS if hasattr(real, name)}
    members["__getattr__"] = get
    members["__setattr__"] = lambda _, name, value: setattr(world.target, name, value)
    members["__repr__"] = lambda _: repr(world.target)
    members["__hash__"] = object.__hash__
    return type(f"World[{real.__name__}]", (), members)()


def _text(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    shown = [repr(arg) for arg in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
    return f"{name}({', '.join(shown)})"
