"""Random calls on a store and on the reference; hypothesis shrinks the script that tells them apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.script import RESTART, ScriptRun, Step, ViaHandle
from pytest_wfstate.errors import StoreTimeout
from pytest_wfstate.faults.failures import is_interruption

__tracebackhide__ = True

IDS = ("a", "b")
EXAMPLES = {"quick": 20, "default": 50, "thorough": 1000}
_LENGTH = 25
_LISTS = 8  # of calls, from which a storm chooses: generating calls takes longer than making most of them


def play_random_calls(
    contract: Contract,
    begin: Callable[[], ScriptRun],
    handles: Callable[[], Handles],
    profile: str,
    *,
    shrinks: bool = True,
) -> None:
    """Make random calls.

    Raises:
        Violation: the store returned what the reference does not.
    """
    with handles() as probed:
        operations = [operation for operation in contract.operations if hasattr(probed[FIRST], operation.name)]

    def play(data: st.DataObject) -> None:
        with handles() as opened:
            steps = data.draw(scripts(operations))
            script = begin()

            def all_steps() -> Iterator[Step]:
                yield from [*steps, RESTART]
                yield from contract.observe([*IDS, *script.timeline.generated_ids])

            for step in all_steps():
                try:
                    script.run(opened, [step])
                except pytest.skip.Exception:
                    continue  # not offered

    search(play, EXAMPLES[profile], shrinks=shrinks)


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


def scripts(operations: Sequence[Operation]) -> st.SearchStrategy[list[Step]]:
    """Generate scripts of calls through several handles, with restarts.

    They all have the same length, since hypothesis prefers short lists; they shrink by steps that are left out.
    """
    on_handles = st.builds(ViaHandle, st.sampled_from([FIRST, FIRST, "second", "third"]), calls(operations, IDS))
    kinds = {"": st.none(), "call": on_handles, RESTART: st.just(RESTART)}
    step = st.sampled_from(["", *["call"] * 14, RESTART]).flatmap(kinds.__getitem__)
    return st.lists(step, min_size=_LENGTH, max_size=_LENGTH).map(lambda steps: list(filter(None, steps)))


def calls(operations: Sequence[Operation], ids: Sequence[str]) -> st.SearchStrategy[Call]:
    """Generate calls about these ids; those that change something are more frequent."""
    calls_of = {operation.name: _calls_of(operation, ids) for operation in operations}
    names = [*calls_of, *(operation.name for operation in operations if operation.mutates)]
    return st.sampled_from(names).flatmap(calls_of.__getitem__)


def _calls_of(operation: Operation, ids: Sequence[str]) -> st.SearchStrategy[Call]:
    return operation.arguments(ids).map(lambda args: operation(*args))


def _is_complete(call: Call) -> bool:
    """Whether a worker can make a call that knows nothing of what earlier ones returned."""
    return not call.needs_results


def chosen_calls(operations: Sequence[Operation], ids: Sequence[str], number: int, seed: int) -> list[Call]:
    """Choose random calls with hypothesis: from several lists, since its first is simple."""
    chosen: list[Call] = []

    @seeded(seed)
    @settings(
        max_examples=_LISTS,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(calls(operations, ids).filter(_is_complete), min_size=number, max_size=number))
    def choose(generated: list[Call]) -> None:
        chosen.extend(generated)

    choose()
    return chosen
