"""Corruption: an unreadable record in a store that holds others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.script import RESTART, ScriptRun
from pytest_wfstate.errors import Violation
from pytest_wfstate.oracle.history import Returned
from pytest_wfstate.oracle.render import call_in_words, result_in_words
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.suites.clauses import Test, clause
from pytest_wfstate.suites.context import ClauseContext

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True

Files = dict[Path, bytes]

_NO_FILE = (
    "no file holds this record and nothing else, so it cannot be damaged alone. Write corrupt(self, home, id), which "
    "makes the record of one id unreadable"
)


def clauses_for(suite: type) -> dict[str, Test]:
    """Make the clause of a suite that says what repairs a record."""
    return {"test_corrupt_heals": _heals} if "heals" in vars(suite) else {}


@clause("safe", "Saving or deleting an unreadable record repairs it.", "input")
def _heals(self: Suite) -> None:
    reads = self.context.reads("a", "b")
    for call in self.heals:
        if self.context.model.may_refuse(call):
            self.context.report("left_out", [self.context.not_supported("replace")])
            continue
        with corrupted(self.context) as (handles, script):
            script.run(handles, [call, *reads, RESTART, *reads])


def truncate(path: Path) -> None:
    """Cut a file in the middle."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def block(path: Path) -> None:
    """Replace a file with a folder: reading that is an OSError, as it is without permission."""
    path.unlink()
    path.mkdir()


def scribble(path: Path) -> None:
    """Overwrite the middle of a file."""
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + b"\xff" * third + data[2 * third :])


def damage_change(context: ClauseContext, home: Path, damage: Callable[[Path], None], change: Call) -> None:
    """Make a change of id `a`, and damage the one file that it changed. No handle is open afterwards."""
    before = _files(home)
    with context.handles(home) as handles:
        context.driver.call(handles[FIRST], change)
    try:
        context.suite.corrupt(home, "a")
    except NotImplementedError:
        context.need_files("write corrupt(self, home, id), which damages the record of one id")
        changed = [path for path, data in _files(home).items() if data != before.get(path)]
        if len(changed) != 1:
            pytest.skip(_NO_FILE)
        damage(changed[0])


@contextlib.contextmanager
def corrupted(context: ClauseContext, damage: Callable[[Path], None] = truncate) -> Iterator[tuple[Handles, ScriptRun]]:
    """Open a store that holds records of `a` and `b`, of which that of `a` is unreadable.

    In the script that continues there, `a` may exist or not, as long as no call asks for it.
    """
    home, write = context.home(), context.contract.write
    with context.handles(home) as handles:
        script = context.begin()
        empty = _files(home)
        script.run(handles, [write("b", 1), RESTART])
        others, without = _files(home), script.timeline.states
        script.run(handles, [write("a", 1), RESTART])
        try:
            context.suite.corrupt(home, "a")
        except NotImplementedError:
            context.need_files("write corrupt(self, home, id), which damages the record of one id")
            damage(_own_file(empty, others, _files(home)))
        script.timeline.states += without
        script.timeline.lines.append("-- the record of 'a' is damaged --")
        yield handles, script


def must_raise(handles: Handles, read: Call) -> None:
    """Make a call that must raise an error.

    Raises:
        Violation: it did not.
    """
    try:
        value = handles.driver.call(handles[FIRST], read)
    except Exception:
        return
    raise Violation(
        f"{call_in_words(read)} {result_in_words(Returned(plain(value)))}\n"
        "    expected: an error, because the record is unreadable"
    )


def _files(home: Path) -> Files:
    return {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def _own_file(empty: Files, others: Files, now: Files) -> Path:
    """Return the one file that only the last save changed. Skip the test if there is none, or more than one."""
    shared = {path for path in others if others[path] != empty.get(path)}
    own = [path for path in now if now[path] != others.get(path) and path not in shared]
    if len(own) != 1:
        pytest.skip(_NO_FILE)
    return own[0]
