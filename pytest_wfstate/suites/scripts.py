"""Scripts: clauses that are nothing but calls."""

from __future__ import annotations

from collections.abc import Callable

from pytest_wfstate.engine.script import Later, Step, Tick
from pytest_wfstate.suites.clauses import Fault, Level, clause
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True


def script(level: Level, promise: str, *lines: Step | Later, fault: Fault = "none") -> Callable[[ClauseContext], None]:
    """Make a clause of calls: whatever they come to in memory, they must come to in every store."""

    @clause(level, promise, fault)
    def test(self: ClauseContext) -> None:
        self._play(lines)

    return test


def timed(level: Level, promise: str, *lines: Step | Later | Tick) -> Callable[[ClauseContext], None]:
    """Make a clause of calls in time that is frozen."""

    @clause(level, promise)
    def test(self: ClauseContext) -> None:
        self._play_in_time(lines)

    return test
