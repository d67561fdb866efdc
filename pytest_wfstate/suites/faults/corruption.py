"""Corruption: a record that cannot be read any more, in a store that holds others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.render import call_in_words, outcome_in_words
from pytest_wfstate.engine.script import RESTART, ScriptRun
from pytest_wfstate.errors import Violation
from pytest_wfstate.oracle.history import Returned
from pytest_wfstate.oracle.model import plain
from pytest_wfstate.suites.clauses import clause
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True


def files(home: Path) -> dict[Path, bytes]:
    """Read all files of a home."""
    return {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def own_file(empty: dict[Path, bytes], others: dict[Path, bytes], now: dict[Path, bytes]) -> Path:
    """Find the one file that only the last save changed.

    Skips the test if there is none, or more than one.
    """
    shared = {path for path in others if others[path] != empty.get(path)}
    own = [path for path in now if now[path] != others.get(path) and path not in shared]
    if len(own) != 1:
        pytest.skip(
            "cannot tell which file holds a record. Write corrupt(self, home, id), which damages that of one id"
        )
    return own[0]


def cut(path: Path) -> None:
    """Cut a file in the middle."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def block(path: Path) -> None:
    """Put a folder in the place of a file: to read that is an error of the system, as without permission."""
    path.unlink()
    path.mkdir()


@contextlib.contextmanager
def corrupted(suite: ClauseContext, harm: Callable[[Path], None] = cut) -> Iterator[tuple[Handles, ScriptRun]]:
    """Give a store that holds records of `a` and `b`, of which that of `a` cannot be read.

    In the script that goes on there, `a` may be there or not, as long as nobody asks for it.
    """
    home, record = suite._home(), suite.contract.write
    with suite._handles(home) as handles:
        play, without = suite._begin(), suite._begin()
        empty = files(home)
        without.all(handles, [record("b", 1), RESTART])
        play.worlds = without.worlds
        others = files(home)
        play.all(handles, [record("a", 1), RESTART])
        _damage(suite, home, empty, others, harm)
        play.worlds = (*play.worlds, *without.worlds)
        yield handles, play


def _damage(
    suite: ClauseContext,
    home: Path,
    empty: dict[Path, bytes],
    others: dict[Path, bytes],
    harm: Callable[[Path], None],
) -> None:
    try:
        suite.corrupt(home, "a")
    except NotImplementedError:
        suite._need_files("write corrupt(self, home, id), which damages the record of one id")
        harm(own_file(empty, others, files(home)))


def must_raise(suite: ClauseContext, handles: Handles, look: Call) -> None:
    """Have a call raise an error.

    Raises:
        Violation: it did not.
    """
    try:
        value = suite._driver.call(handles[FIRST], look)
    except Exception:
        return
    raise Violation(
        f"{suite._title}\n\n{call_in_words(look)} -> {outcome_in_words(Returned(plain(value)))}\n"
        "    expected: an error, for the record cannot be read"
    )


def heal_clauses(suite: type) -> dict[str, Callable[[ClauseContext], None]]:
    """Make the clause of a suite that says what heals a record."""
    return {"test_corrupt_heals": _heals} if "heals" in vars(suite) else {}


@clause("safe", "Saving or deleting a record that cannot be read heals it.", "input")
def _heals(self: ClauseContext) -> None:
    for call in self.heals:
        with corrupted(self) as (handles, play):
            play.all(handles, [call, *self._looks("a", "b"), RESTART, *self._looks("a", "b")])
