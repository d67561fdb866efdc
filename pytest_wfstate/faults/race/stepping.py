"""Stepping: threads that stop before each line, or each opcode, of the code under test.

Python 3.12 and later have `sys.monitoring` for that, with a tool of our own beside those of coverage and debuggers,
which see all that they would see without us. Before, there is one trace function in a thread: ours calls the one
that it takes the place of.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.race.schedule import Access
from pytest_wfstate.faults.race.thread_scheduler import MEMORY, here, place
from pytest_wfstate.faults.source import SourceLine, is_installed, is_users

By = Literal["line", "opcode"]
"""What a client takes a turn at."""

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_OURS_UNDER_TEST = tuple(f"{_PACKAGE}{part}{os.sep}" for part in ("stores", "zoo", "adapters"))
_NOT_STORES = {"pydantic", "pydantic_core", "typing_extensions"}

# What can reach an object that another thread has too. All other opcodes move what is on the thread's own stack, or
# jump: to stop before one of them comes to the same as to stop before the next one of these.
_REACHING = {
    *("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR"),
    *("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"),
    *("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME"),
    *("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"),
    *("CALL", "CALL_KW", "CALL_FUNCTION_EX"),  # a method of a dict, of a list, of anything written in C
    *("BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "TO_BOOL"),  # `items += [1]`, `a == b`, `key in items`, `if items`
    *("GET_ITER", "FOR_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"),
}
_FIXED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class CannotStep(WfstateError, RuntimeError):
    """Nothing is left to step through code with."""


class UnderTest:
    """Which code takes turns: the user's, that of this package's stores, and that of the shared object's own package.

    The standard library and what else is installed keep nothing that clients share but through these.
    """

    def __init__(self) -> None:
        self.packages: tuple[str, ...] = ()
        """Folders of installed packages whose code takes turns too."""
        self._known: dict[str, bool] = {}

    def __call__(self, filename: str) -> bool:
        """Whether a file is stepped through."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._is_under_test(filename)
        return known

    def include(self, shared: Any) -> None:
        """Have the packages take turns that the classes of a shared object, or of what it is a group of, come from."""
        packages = tuple(sorted({folder for kind in _kinds(shared) for folder in _home_of(kind)}))
        if packages != self.packages:
            self.packages = packages
            self._known.clear()

    def _is_under_test(self, filename: str) -> bool:
        if filename.startswith(_PACKAGE):
            return filename.startswith(_OURS_UNDER_TEST)
        if not is_users(filename):
            return False
        return not is_installed(filename) or filename.startswith(self.packages)


class StopPoint:
    """A place in the code where a client stops, and what it is about to do there."""

    __slots__ = ("_kind", "_line", "_touches", "_what")

    def __init__(self, kind: str, line: SourceLine, opcode: str = "") -> None:
        self._kind = kind
        self._line = line
        self._what = f"{place(line)} {opcode}".strip()
        self._touches: dict[Any, Access] = {}

    def access(self, held: frozenset[tuple[int, bool]]) -> Access:
        """Give it as a touch, by who has these locks."""
        access = self._touches.get(held)
        if access is None:
            access = self._touches[held] = Access(self._kind, self._what, self._line, writes=MEMORY, held=held)
        return access


class Spots:
    """All places at which to stop, by line or by opcode."""

    def __init__(self, by: By, is_under_test: Callable[[str], bool]) -> None:
        self.by = by
        self._is_under_test = is_under_test
        self._of_code: dict[types.CodeType, dict[int, StopPoint]] = {}
        self._awaits: dict[tuple[types.CodeType, int], StopPoint] = {}

    def of(self, code: types.CodeType, frame: types.FrameType) -> dict[int, StopPoint] | None:
        """Give the places in a code object: by line number, or by offset. None: it is not under test."""
        spots = self._of_code.get(code)
        if spots is None:
            # A module is imported once, and then never again: a schedule could not be followed twice.
            if code.co_name == "<module>" or not self._is_under_test(code.co_filename):
                return None
            made = _opcodes(code, frame.f_globals) if self.by == "opcode" else _lines(code)
            spots = self._of_code[code] = dict(made)
        return spots

    def at_await(self, code: types.CodeType, frame: types.FrameType) -> StopPoint:
        """Give the place where a coroutine goes on."""
        key = (code, frame.f_lineno)
        if key not in self._awaits:
            self._awaits[key] = StopPoint("await", SourceLine(code.co_filename, frame.f_lineno, code.co_name))
        return self._awaits[key]


def step(spot: StopPoint) -> None:
    """Take a turn, if this thread is a client."""
    thread = here.client
    if thread is not None:
        thread.take(spot.access(thread.held))


def go_on(spots: Spots, code: types.CodeType, frame: types.FrameType) -> None:
    """Take a turn, if this thread is a client whose coroutine goes on, the outermost one of those that wait."""
    thread = here.client
    if thread is not None and thread.has_rested:
        thread.has_rested = False
        thread.take(spots.at_await(code, frame).access(thread.held))


class Stepping(Protocol):
    """Makes clients stop."""

    def on(self) -> None:
        """Begin, in all threads that are asked to."""

    def off(self) -> None:
        """Put back what was there before."""

    def enter(self) -> None:
        """Begin, in this thread."""

    def leave(self) -> None:
        """Leave this thread as it was."""


class Monitoring:
    """Stepping by `sys.monitoring`."""

    def __init__(self, spots: Spots) -> None:
        self._spots = spots
        self._tool: int | None = None
        self._codes: dict[types.CodeType, dict[int, StopPoint]] = {}

    def on(self) -> None:
        """Begin to listen. Who is no client goes on at once.

        Raises:
            CannotStep: others have all tools.
        """
        if self._tool is not None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        free = [tool for tool in (3, 4) if monitoring.get_tool(tool) is None]
        if not free:
            raise CannotStep(
                "the tools 3 and 4 of sys.monitoring are both taken, by "
                f"{monitoring.get_tool(3)!r} and {monitoring.get_tool(4)!r}. One is needed to stop threads at lines: "
                "run these tests without one of them."
            )
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "wfstate")
        events = monitoring.events
        step = (events.LINE, self._at_line) if self._spots.by == "line" else (events.INSTRUCTION, self._at_opcode)
        for event, heard in (step, (events.PY_START, self._started), (events.PY_RESUME, self._resumed)):
            monitoring.register_callback(self._tool, event, heard)
        monitoring.restart_events()  # a tool of this number may have been deaf to some places
        monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)

    def off(self) -> None:
        """Stop to listen."""
        if self._tool is None:
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        monitoring.set_events(self._tool, 0)
        for code in self._codes:
            monitoring.set_local_events(self._tool, code, 0)
        for event in (events.LINE, events.INSTRUCTION, events.PY_START, events.PY_RESUME):
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        monitoring.restart_events()
        self._codes.clear()
        self._tool = None

    def enter(self) -> None:
        """Do nothing: it is on for all threads."""

    def leave(self) -> None:
        """Do nothing."""

    def _started(self, code: types.CodeType, _: int) -> Any:
        if self._follow(code, sys._getframe(1)) and self._spots.by == "line":
            return None  # to be deaf to the start of a function is to be deaf to a body on the same line
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _resumed(self, code: types.CodeType, _: int) -> Any:
        frame = sys._getframe(1)
        if self._follow(code, frame) and code.co_flags & inspect.CO_COROUTINE:
            return go_on(self._spots, code, frame)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _follow(self, code: types.CodeType, frame: types.FrameType) -> bool:
        """Listen to the steps of code, if it is under test."""
        if code in self._codes:
            return True
        spots = self._spots.of(code, frame)
        if spots is None:
            return False
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self._codes[code] = spots
        events = monitoring.events
        event = events.LINE if self._spots.by == "line" else events.INSTRUCTION
        monitoring.set_local_events(self._tool, code, event)
        return True

    def _at_line(self, code: types.CodeType, number: int) -> Any:
        spot = self._codes[code].get(number)
        return step(spot) if spot else sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _at_opcode(self, code: types.CodeType, offset: int) -> Any:
        spot = self._codes[code].get(offset)
        return step(spot) if spot else sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]


class Tracing:
    """Stepping by `sys.settrace`, which is of one thread; what traced it before hears all that it would have."""

    def __init__(self, spots: Spots) -> None:
        self._spots = spots
        self._event = spots.by
        self._of_code: dict[types.CodeType, Callable[..., Any] | None] = {}

    def on(self) -> None:
        """Do nothing: each thread does it for itself."""

    def off(self) -> None:
        """Do nothing."""

    def enter(self) -> None:
        """Trace this thread, for whoever did so before as well."""
        before = sys.gettrace()
        sys.settrace(self._called if before is None else _Chain(before, self._called))

    def leave(self) -> None:
        """Give this thread back to who traced it before."""
        tracing = sys.gettrace()
        sys.settrace(tracing.before if isinstance(tracing, _Chain) else None)

    def _called(self, frame: types.FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._of_code:
            spots = self._spots.of(code, frame)
            self._of_code[code] = None if spots is None else self._stepping_through(spots)
        local = self._of_code[code]
        if local is not None:
            frame.f_trace_opcodes = self._event == "opcode"
            if code.co_flags & inspect.CO_COROUTINE and _is_resumed(frame):
                go_on(self._spots, code, frame)
        return local

    def _stepping_through(self, spots: dict[int, StopPoint]) -> Callable[..., Any]:
        wanted = self._event
        by_line = wanted == "line"

        def local(frame: types.FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == wanted:
                spot = spots.get(frame.f_lineno if by_line else frame.f_lasti)
                if spot is not None:
                    step(spot)
            return local

        return local


class _Chain:
    """Two trace functions, one after the other: that of before, and ours."""

    def __init__(self, before: Any, ours: Callable[..., Any]) -> None:
        self.before = before
        self._ours = ours

    def __call__(self, frame: types.FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        theirs = self.before(frame, event, arg)
        new = sys.gettrace()
        if new is not self:  # it has put itself, or another, in the place of us both, as coverage does
            self.before = new
            sys.settrace(self)
        ours = self._ours(frame, event, arg)
        if theirs is None or ours is None:
            return ours or theirs  # type: ignore[no-any-return]
        return _both(theirs, ours)


def _both(theirs: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    def local(frame: types.FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal theirs
        if theirs is not None and event != "opcode":
            theirs = theirs(frame, event, arg)
        ours(frame, event, arg)
        return local

    return local


def stepping(spots: Spots) -> Stepping:
    """Give the way of this Python to stop threads."""
    return Monitoring(spots) if hasattr(sys, "monitoring") else Tracing(spots)


def _is_resumed(frame: types.FrameType) -> bool:
    """Tell whether a frame is not called for the first time, but goes on after an `await`."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return at >= 0 and dis.opname[code[at]] == "RESUME" and code[at + 1] & 3 == 3


def _lines(code: types.CodeType) -> Iterator[tuple[int, StopPoint]]:
    for _, _, number in code.co_lines():
        if number is not None:
            yield number, StopPoint("line", SourceLine(code.co_filename, number, code.co_name))


def _opcodes(code: types.CodeType, names: dict[str, Any]) -> Iterator[tuple[int, StopPoint]]:
    number = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        positions = instruction.positions
        number = (positions.lineno if positions else None) or number
        if instruction.opname in _REACHING and not _is_fixed(instruction, names):
            line = SourceLine(code.co_filename, number, code.co_name)
            yield instruction.offset, StopPoint("opcode", line, f"{instruction.opname} {instruction.argrepr}".strip())


def _is_fixed(instruction: dis.Instruction, names: dict[str, Any]) -> bool:
    """Tell whether an opcode looks up a function, class or module by its global name, which nobody changes."""
    name = instruction.argval
    return instruction.opname == "LOAD_GLOBAL" and isinstance(names.get(name, vars(builtins).get(name)), _FIXED)


def _kinds(shared: Any) -> Iterator[type]:
    """Give the classes of an object, and of what it is a group of."""
    group = shared.values() if isinstance(shared, dict) else shared if isinstance(shared, (tuple, list)) else ()
    for one in (shared, *group):
        yield from type(one).__mro__


@functools.cache
def _home_of(kind: type) -> tuple[str, ...]:
    """Give the folders of the installed package that a class comes from, if it does from one that may be a store's."""
    root = kind.__module__.partition(".")[0]
    module = sys.modules.get(root)
    if root in _NOT_STORES or module is None:
        return ()
    if hasattr(module, "__path__"):
        return tuple(os.path.join(folder, "") for folder in module.__path__)
    file = getattr(module, "__file__", None)
    return (file,) if file else ()
