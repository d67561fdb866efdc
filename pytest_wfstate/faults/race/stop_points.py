"""Stop points: the lines or opcodes of the code under test before which a thread can be preempted."""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pytest_wfstate.faults.race.schedule import Access
from pytest_wfstate.faults.race.thread_scheduler import MEMORY, place
from pytest_wfstate.faults.source_lines import SourceLine, is_installed, is_users

Granularity = Literal["line", "opcode"]
"""What one step of a thread is."""

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_OURS_UNDER_TEST = tuple(f"{_PACKAGE}{part}{os.sep}" for part in ("stores", "zoo", "frameworks"))
_NOT_STORES = {"pydantic", "pydantic_core", "typing_extensions"}

# The opcodes that can reach an object which another thread has too. All others move what is on the thread's own stack,
# or jump: to stop before one of them is equivalent to stopping before the next one of these.
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


class UnderTest:
    """Which code is interleaved: the user's, this package's stores, and the package that the shared object is from.

    The standard library and other installed packages share nothing between clients except through these.
    """

    def __init__(self) -> None:
        self.packages: tuple[str, ...] = ()
        """Folders of installed packages that are interleaved too."""
        self._known: dict[str, bool] = {}

    def __call__(self, filename: str) -> bool:
        """Whether a file is under test."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._is_under_test(filename)
        return known

    def include(self, shared: Any) -> None:
        """Include the packages that define the classes of the shared object, or of its items."""
        packages = tuple(sorted({folder for kind in _classes(shared) for folder in _folders_of(kind)}))
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

    __slots__ = ("_accesses", "_kind", "_line", "_what")

    def __init__(self, kind: str, line: SourceLine, opcode: str = "") -> None:
        self._kind = kind
        self._line = line
        self._what = f"{place(line)} {opcode}".strip()
        self._accesses: dict[Any, Access] = {}

    def access(self, held: frozenset[tuple[int, bool]]) -> Access:
        """Return the access made there by a client that holds these locks."""
        access = self._accesses.get(held)
        if access is None:
            access = self._accesses[held] = Access(self._kind, self._what, self._line, writes=MEMORY, held=held)
        return access


class StopPoints:
    """All stop points of the code under test, by line or by opcode."""

    def __init__(self, by: Granularity, is_under_test: Callable[[str], bool]) -> None:
        self.by = by
        self._is_under_test = is_under_test
        self._of_code: dict[types.CodeType, dict[int, StopPoint]] = {}
        self._awaits: dict[tuple[types.CodeType, int], StopPoint] = {}

    def of(self, code: types.CodeType, frame: types.FrameType) -> dict[int, StopPoint] | None:
        """Return those of a code object, by line number or offset, or None if it is not under test."""
        points = self._of_code.get(code)
        if points is None:
            # A module is imported only once: a schedule that stops in it could not be followed again.
            if code.co_name == "<module>" or not self._is_under_test(code.co_filename):
                return None
            points = self._of_code[code] = dict(
                _opcodes(code, frame.f_globals) if self.by == "opcode" else _lines(code)
            )
        return points

    def at_await(self, code: types.CodeType, frame: types.FrameType) -> StopPoint:
        """Return the one where a coroutine resumes."""
        key = (code, frame.f_lineno)
        if key not in self._awaits:
            self._awaits[key] = StopPoint("await", SourceLine(code.co_filename, frame.f_lineno, code.co_name))
        return self._awaits[key]


def _lines(code: types.CodeType) -> Iterator[tuple[int, StopPoint]]:
    for _, _, number in code.co_lines():
        if number is not None:
            yield number, StopPoint("line", SourceLine(code.co_filename, number, code.co_name))


def _opcodes(code: types.CodeType, names: dict[str, Any]) -> Iterator[tuple[int, StopPoint]]:
    number, begin = code.co_firstlineno, None
    for instruction in dis.get_instructions(code):
        begin = instruction.offset if begin is None else begin
        if instruction.opname == "EXTENDED_ARG":
            continue  # a prefix: before Python 3.12, only the first one of an instruction is traced
        positions = instruction.positions
        number = (positions.lineno if positions else None) or number
        if instruction.opname in _REACHING and not _is_fixed(instruction, names):
            line = SourceLine(code.co_filename, number, code.co_name)
            yield begin, StopPoint("opcode", line, f"{instruction.opname} {instruction.argrepr}".strip())
        begin = None


def _is_fixed(instruction: dis.Instruction, names: dict[str, Any]) -> bool:
    """Whether an opcode looks up a global function, class or module, which does not change."""
    name = instruction.argval
    return instruction.opname == "LOAD_GLOBAL" and isinstance(names.get(name, vars(builtins).get(name)), _FIXED)


def _classes(shared: Any) -> Iterator[type]:
    """Yield the classes of an object and of its items."""
    items = shared.values() if isinstance(shared, dict) else shared if isinstance(shared, (tuple, list)) else ()
    for item in (shared, *items):
        yield from type(item).__mro__


@functools.cache
def _folders_of(kind: type) -> tuple[str, ...]:
    """Return the folders of the installed package that defines a class, if that may be a store's."""
    root = kind.__module__.partition(".")[0]
    module = sys.modules.get(root)
    if root in _NOT_STORES or module is None:
        return ()
    if hasattr(module, "__path__"):
        return tuple(os.path.join(folder, "") for folder in module.__path__)
    file = getattr(module, "__file__", None)
    return (file,) if file else ()
