"""Rehearsals: what goes wrong in a script without any fault is no matter of the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.report_text import said
from pytest_wfstate.labs.crash import NotMeasured
from pytest_wfstate.suites.context import ClauseContext

__tracebackhide__ = True


class Rehearsable(Protocol):
    """Something that a fault is done to."""

    def rehearse(self, new_home: Callable[[], Path]) -> None:
        """Do it without the fault."""


R = TypeVar("R", bound=Rehearsable)


def rehearsed(suite: ClauseContext, some: Sequence[R]) -> Iterator[R]:
    """Give those that a fault can be done to, one by one.

    Raises, when all are through:
        NotMeasured: one does not do what its contract says even so.
        skip: the store offers none of them.
    """
    unmeasured: list[Exception] = []
    not_offered: list[str] = []
    for one in some:
        try:
            one.rehearse(suite._home)
        except pytest.skip.Exception as skipped:
            not_offered.append(str(skipped))
        except Exception as error:
            if suite._fails_to_open:
                raise
            unmeasured.append(error)
        else:
            yield one
    if unmeasured:
        raise NotMeasured(
            f"{suite._title}\n\nNOT_MEASURED: without any fault the store already does what its contract does not "
            f"allow. Mend that first:\n{_told(unmeasured[0])}"
        )
    if len(not_offered) == len(some):
        pytest.skip(not_offered[0])
    suite._tell("left_out", dict.fromkeys(not_offered))


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, Violation) else "\n".join(said(error))
