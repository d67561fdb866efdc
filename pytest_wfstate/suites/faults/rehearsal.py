"""Rehearsals: a fault is injected only into what works without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import pytest

from pytest_wfstate.errors import AdapterError, CannotCompare, Violation
from pytest_wfstate.faults.report_text import error_lines
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True


class Rehearsable(Protocol):
    """Calls that a fault is injected into."""

    def rehearse(self) -> None:
        """Make them without the fault."""


R = TypeVar("R", bound=Rehearsable)


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
        text = str(failures[0]) if isinstance(failures[0], Violation) else "\n".join(error_lines(failures[0]))
        raise NotMeasured(
            f"NOT_MEASURED. The store violates its contract even without a fault. Fix this first:\n{text}"
        )
    if len(not_offered) == len(runs):
        pytest.skip(not_offered[0])
    context.report("left_out", dict.fromkeys(not_offered))
