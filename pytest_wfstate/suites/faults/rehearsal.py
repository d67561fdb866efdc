"""Rehearsals: what a store does without a fault decides what it is compared with when there is one.

That is the reference, if the store does what the reference does. If not, it is the store itself: what its own runs show
that nothing interrupts. So a deviation from the contract, which other clauses report, hides nothing.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import pytest

from pytest_wfstate.errors import AdapterError, CannotCompare, Violation, blamed, cause_of
from pytest_wfstate.faults.crash.task import NOTHING_WRITTEN
from pytest_wfstate.faults.report_text import failure_lines
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True


class Rehearsable(Protocol):
    """Calls that a fault is injected into."""

    title: str
    """What they do, in a line."""

    def rehearse(self) -> None:
        """Make them without the fault."""

    def rehearse_alone(self) -> None:
        """Make them without the fault, and from now on judge the store by what it does then."""

    @property
    def may_write_nothing(self) -> bool:
        """Whether there need not be anything that a fault could hurt."""

    @property
    def cannot_tell(self) -> str:
        """Why the last check says nothing, if it does."""


R = TypeVar("R", bound=Rehearsable)

_AFTER: Mapping[str, str] = collections.defaultdict(
    lambda: "after a fault",
    kill="after a kill",
    power="after a power cut",
    errors="after an I/O error",
    server="after a lost connection",
    race="in a race",
    cancel="after a cancellation",
)
"""What a fault does, as the cause of a failure begins."""


def inject(context: ClauseContext, runs: Sequence[R], fault: Callable[[R], object]) -> None:
    """Inject a fault into each run: one that fails hides no other.

    Raises:
        Violation: a run does not survive. The report of the first is complete, and the others have a line each.
        NotMeasured, skip: as `rehearsed` does, or because that could not be seen of a run.
    """
    violations: list[tuple[R, Violation]] = []
    unmeasured: list[NotMeasured] = []
    harmless: list[NotMeasured] = []
    is_measured = False
    for run in list(rehearsed(context, runs, unmeasured)):
        try:
            fault(run)
            is_measured = True
        except Violation as violation:
            if why := run.cannot_tell:
                unmeasured.append(_not_measured(why))
            else:
                violations.append((run, violation))
        except NotMeasured as error:
            wrote_nothing = NOTHING_WRITTEN in str(error)
            (harmless if wrote_nothing and run.may_write_nothing else unmeasured).append(error)
    if violations:
        (_, first), *others = violations
        lines = [*context.judged_by(), str(first)]
        if others:
            lines += ["", "It also fails for:", *(f"  {run.title}" for run, _ in others)]
        first.args = ("\n".join(lines),)
        if first.cause:
            first.cause = f"{_AFTER[context.fault]}, {first.cause}"
        raise first
    if not is_measured:
        unmeasured += harmless
    if unmeasured:
        raise unmeasured[0]


def rehearsed(context: ClauseContext, runs: Sequence[R], unmeasured: list[NotMeasured]) -> Iterator[R]:
    """Rehearse runs one by one, and yield those that work, by the contract or at least in the same way twice.

    Those that do not are added to `unmeasured`.

    Raises, after the last:
        skip: the store offers none of them.
    """
    not_offered: list[str] = []
    for run in runs:
        try:
            _rehearse(context, run)
        except pytest.skip.Exception as skipped:
            not_offered.append(str(skipped))
        except NotMeasured as error:
            unmeasured.append(error)
        else:
            yield run
    if len(not_offered) == len(runs):
        pytest.skip(not_offered[0])
    context.report("left_out", dict.fromkeys(not_offered))


def _rehearse(context: ClauseContext, run: Rehearsable) -> None:
    try:
        run.rehearse()
    except (AdapterError, CannotCompare):
        raise  # nothing is known about the store then
    except Exception as error:
        if context.facts.fails_to_open:
            raise
        deviation = error
    else:
        return
    try:
        run.rehearse_alone()
    except (AdapterError, CannotCompare):
        raise
    except Exception as error:
        if not isinstance(error, NotMeasured):
            error = NotMeasured("\n".join(["two of the store's own uninterrupted runs differ:", *failure_lines(error)]))
        first = ["", "The store violates its contract even without a fault. Fix this first:", *failure_lines(deviation)]
        raise blamed(_not_measured("\n".join([str(error), *first])), cause_of(deviation)) from None
    context.judges_by_own_runs(cause_of(deviation) or failure_lines(deviation)[0])


def _not_measured(why: str) -> NotMeasured:
    return NotMeasured(f"NOT_MEASURED. {why[0].upper()}{why[1:]}")
