"""Half-read lists: what a store returns as an iterator must not stand in the way of other calls, nor hold anything."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pytest_wfstate.engine.handles import FIRST
from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.errors import AdapterError, CannotCompare, Violation
from pytest_wfstate.faults.report_text import failure_lines
from pytest_wfstate.oracle.render import call_in_words
from pytest_wfstate.suites.clauses import NOT_APPLICABLE, Test, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash_run import Scenario

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True


def clauses_for(suite: type) -> dict[str, Test]:
    """Make the clause of a suite whose contract has a list."""
    return {"test_iterators_half_read": _half_read} if vars(suite).get("lists") else {}


@clause("safe", "A list that is half-read blocks no other call, and holds nothing once its iterator is closed.")
def _half_read(self: Suite) -> None:
    for scenario in self.lists:
        for reads_on in (True, False):
            _read_half(self.context, scenario, reads_on=reads_on)


def _read_half(context: ClauseContext, scenario: Scenario, *, reads_on: bool) -> None:
    """Read one item of a list, make calls, and then read the others, or close the iterator; make calls again.

    Raises:
        Violation: a call or the iterator failed, or the store shows what the reference does not.
    """
    (list_,) = scenario.calls
    with context.handles(context.home()) as handles:
        script = context.begin()
        script.run(handles, scenario.before)
        reading = context.driver.begin_to_read(handles[FIRST], list_)
        if reading is None:
            pytest.skip(f"{NOT_APPLICABLE}: {list_.name} returns a plain list, not an iterator")
        if not reading.read_one():
            return  # it has too few items, as other clauses report
        script.timeline.lines.append(f"{FIRST}.{call_in_words(list_)} was half-read")
        try:
            for call in scenario.then or ():
                with contextlib.suppress(pytest.skip.Exception):  # the store does not offer it
                    script.run(handles, [second_handle(call)])
            script.run(handles, [context.contract.write("c", 1)])
            while reads_on and reading.read_one():
                pass  # the contract does not say which items follow
            reading.close()
            script.timeline.lines.append(f"its iterator was {'read to its end' if reads_on else 'closed'}")
            write, reads = context.contract.write("a", 3), context.reads("a", "c")
            script.run(handles, [second_handle(write), write, *reads, RESTART, *reads])
        except (AdapterError, CannotCompare):
            raise
        except Exception as error:
            raise Violation("\n".join([f"{call_in_words(list_)} was half-read.", *failure_lines(error)])) from error
