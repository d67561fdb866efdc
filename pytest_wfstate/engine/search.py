"""A search for the simplest example that fails, the same in each run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from pytest_wfstate.errors import StoreTimeout
from pytest_wfstate.faults.failures import is_interruption

__tracebackhide__ = True


def search(attempt: Callable[[st.DataObject], None], examples: int, *, shrinks: bool = True) -> None:
    """Attempt something with this many examples that it draws, always the same ones.

    If an attempt fails, raise the error of the simplest example that fails.
    """

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
    )
    @given(st.data())
    def each(data: st.DataObject) -> None:
        with _ending_the_search():  # a time limit can strike while an example is drawn, too
            attempt(data)

    try:
        each()
    except _SearchEnds as end:
        raise end.__cause__ or end from None


class _SearchEnds(BaseException):
    """Ends the search for the script that is its cause."""


@contextlib.contextmanager
def _ending_the_search() -> Iterator[None]:
    """End the search where hypothesis would run the script again.

    After a call that hung, shrinking would wait for the timeout again and again. An interruption does not repeat, so
    hypothesis would report that the test is flaky.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, StoreTimeout) or is_interruption(error):
            raise _SearchEnds from error
        raise
