"""Cancel clauses: for each method that changes something, what may be left of a call that asyncio cancels.

An async call is cancelled at each moment at which it can be. It must have happened in full or not at all, the handle
must still work, and another handle must be able to make the same call at once. A store may go on with a cancelled call
until it is closed, but not after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.script import RESTART, ScriptRun, second_handle
from pytest_wfstate.errors import AdapterError, CannotCompare, StoreTimeout, Violation
from pytest_wfstate.faults.cancel import Cancellation
from pytest_wfstate.faults.report_text import failure_lines
from pytest_wfstate.oracle.history import Outcome
from pytest_wfstate.oracle.render import call_in_words
from pytest_wfstate.suites.clauses import NOT_APPLICABLE, Test, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash_run import CrashRun, Scenario, scenarios_of
from pytest_wfstate.suites.faults.rehearsal import inject

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True

_LEFT_BEHIND = "what the cancelled call has left behind"


def clauses_for(suite: type) -> dict[str, Test]:
    """Make the clauses of a suite's scenarios."""
    return {f"test_cancel_{name}": _cancelled(name) for name in vars(suite).get("scenarios", {})}


def _cancelled(name: str) -> Test:
    verb = name.replace("_", " ")
    promise = f"If {verb} is cancelled at any await, it is all or nothing, and the store keeps working."

    @clause("safe", promise, "cancel")
    def test(self: Suite) -> None:
        context = self.context
        runs = [CancelRun(context, scenario) for scenario in scenarios_of(context, name, "cancel")]
        inject(context, runs, CancelRun.cancel_at_each_moment)

    return test


@dataclasses.dataclass(frozen=True, slots=True)
class Cancelled:
    """A run of a scenario up to the call that was cancelled."""

    call: Call
    cancellation: Cancellation
    handles: Handles
    script: ScriptRun


class CancelRun(CrashRun):
    """A scenario, one call of which is cancelled."""

    def __init__(self, context: ClauseContext, scenario: Scenario) -> None:
        super().__init__(context, scenario, ack=lambda _: None)
        self._lasting: set[str] = set()

    def rehearse(self) -> None:
        """Make all calls without cancelling one, and learn when they can be. Skip if they are not async."""
        names, is_async = {call.name for call in self._scenario.calls}, self._context.facts.is_async
        if all(is_async.get(name) is False for name in names):
            _skip()
        super().rehearse()
        with self._running(0) as run:
            self._lasting, moments = run.cancellation.left, run.cancellation.moments
        is_async.update((name, is_async.get(name, False) or moments > 0) for name in names)
        if not moments:
            _skip()

    def cancel_at_each_moment(self) -> None:
        """Cancel the calls of the scenario at each moment, and use the store afterwards; or close it, if that differs.

        Raises:
            Violation: the reference does not explain what the store did.
        """
        for nth in itertools.count(1):
            with self._running(nth) as run:
                if not run.cancellation.struck:
                    return
                closes_differently = bool(run.cancellation.left) and _has_close(self._context, run.handles)
                self._use(run)
            if closes_differently:
                with self._running(nth) as run:
                    self._close(run)

    @contextlib.contextmanager
    def _running(self, nth: int) -> Iterator[Cancelled]:
        """Make the calls on a new store, up to the one that is cancelled. An error says what was cancelled."""
        home, driver = self._context.unprepared_home(), self._context.driver
        self.setup(home)
        script, cancellation = ScriptRun(self._judge.begin(self._start)), Cancellation(nth, self._lasting)
        call = self._calls[0]
        try:
            with driver.cancelling(cancellation), self._context.handles(home) as handles:
                for number, unresolved in enumerate(self._calls):
                    call = self._resolved(unresolved, script.results)
                    self._call(handles, cancellation, script, number, call)
                    if cancellation.struck:
                        break
                cancellation.stop()
                yield Cancelled(call, cancellation, handles, script)
                handles.restart()
                driver.run(cancellation.settle, _LEFT_BEHIND)
        except (Exception, asyncio.CancelledError) as error:
            if not cancellation.struck or isinstance(error, AdapterError | CannotCompare):
                raise
            what = f"{call_in_words(call)} was cancelled {cancellation.struck}."
            raise Violation("\n".join([what, *failure_lines(error)])) from error

    def _call(self, handles: Handles, cancellation: Cancellation, script: ScriptRun, number: int, call: Call) -> None:
        """Make a call. If it was cancelled, and did not return all the same, it may still take effect."""
        outcome: Outcome | None = None
        try:
            outcome = self._made(handles, number, call)
        except asyncio.CancelledError:
            if not cancellation.struck:
                raise Violation(f"{call_in_words(call)} raised CancelledError, but nobody had cancelled it.") from None
        except (StoreTimeout, AdapterError, CannotCompare):
            raise
        except Exception:
            if not cancellation.struck:
                raise
        if outcome is None:
            script.timeline.cancel(FIRST, call, "was cancelled")
        else:
            script.judge(handles, FIRST, call, outcome)

    def _use(self, run: Cancelled) -> None:
        """Look, make the same call through another handle, and use both; then reopen the store."""
        script = run.script
        script.run(run.handles, [*self._looks, second_handle(run.call), *self._reads, *self._afterwards])
        script.timeline.settled()
        script.run(run.handles, [RESTART, *self._all_reads(script)])

    def _close(self, run: Cancelled) -> None:
        """Close the store while something goes on that the cancelled call has left behind, and reopen it."""
        script, left = run.script, ", ".join(sorted(run.cancellation.left))
        script.timeline.settled()
        try:
            script.run(run.handles, [RESTART])
        except StoreTimeout:
            return  # it may wait, in a way that is not seen, for a thread that is held
        script.run(run.handles, self._looks)
        self._context.driver.run(run.cancellation.settle, _LEFT_BEHIND)
        try:
            script.run(run.handles, [*self._looks, *self._all_reads(script)])
        except Violation as violation:
            raise Violation(f"{violation}\n{left} went on after the store was closed.") from None

    @property
    def _looks(self) -> list[Call]:
        """The reads that change nothing, not even what a recovery would."""
        return list({id(call): call for call in self._reads if not self._changes(call)}.values())

    def _all_reads(self, script: ScriptRun) -> list[Call]:
        return [*self._reads, *self._reads_of(script.timeline.generated_ids)]


def _skip() -> None:
    pytest.skip(f"{NOT_APPLICABLE}: the store's methods are not async, so no call can be cancelled")


def _has_close(context: ClauseContext, handles: Handles) -> bool:
    return handles.has_close(FIRST) or type(context.suite).close.__qualname__ != "Suite.close"
