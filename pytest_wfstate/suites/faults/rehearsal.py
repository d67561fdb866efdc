"""Rehearsals: a fault is injected only into what works without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pytest

from pytest_wfstate.errors import AdapterError, CannotCompare, Violation
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


R = TypeVar("R", bound=Rehearsable)


def inject(context: ClauseContext, runs: Sequence[R], fault: Callable[[R], object]) -> None:
    """Inject a fault into each run that works without it: one that fails hides no other.

    Raises:
        Violation: a run does not survive. The report of the first is complete, and the others have a line each.
        NotMeasured, skip: as `rehearsed` does.
    """
    violations: list[tuple[R, Violation]] = []
    try:
        for run in rehearsed(context, runs):
            try:
                fault(run)
            except Violation as violation:
                violations.append((run, violation))
    except NotMeasured:
        if not violations:
            raise
    if violations:
        (_, first), *others = violations
        if others:
            first.args = ("\n".join([str(first), "", "It also fails for:", *(f"  {run.title}" for run, _ in others)]),)
        raise first


def rehearsed(context: ClauseContext, runs: Sequence[R]) -> Iterator[R]:
    """Rehearse runs one by one, and yield those that work.

    Raises, after the last:
        NotMeasured: one violates the contract even without a fault.
        skip: the store offers none of them.
    """
    failures: list[Exception] = []
    not_offered: list[str] = []
    for run in runs:
        try:
            run.rehearse()
        except pytest.skip.Exception as skipped:
            not_offered.append(str(skipped))
        except (AdapterError, CannotCompare):
            raise  # nothing is known about the store then
        except Exception as error:
            if context.facts.fails_to_open:
                raise
            failures.append(error)
        else:
            yield run
    if failures:
        text = "\n".join(failure_lines(failures[0]))
        raise NotMeasured(
            f"NOT_MEASURED. The store violates its contract even without a fault. Fix this first:\n{text}"
        )
    if len(not_offered) == len(runs):
        pytest.skip(not_offered[0])
    context.report("left_out", dict.fromkeys(not_offered))
