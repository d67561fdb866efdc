"""Random calls on a store and on the reference; hypothesis shrinks the script that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.engine.handles import FIRST, Handles
from pytest_wfstate.engine.random_records import EDGE_IDS, edge_calls
from pytest_wfstate.engine.script import RESTART, ScriptRun, Step, ViaHandle
from pytest_wfstate.engine.search import search

__tracebackhide__ = True

EXAMPLES = {"quick": 20, "default": 50, "thorough": 1000}
_IDS = [("a", "b"), ("a", "ab"), ("run-10", "run-1"), ("a", "a-b"), ("1", "01")]
"""Ids of a script: each is usual, but one can begin or end as the other does. Most calls are about the first."""
_TWO_EDGES = st.tuples(st.sampled_from(EDGE_IDS), st.sampled_from(EDGE_IDS))
"""Ids of records that have unusual values."""
_LENGTH = 14  # of a script, in parts
_IN_A_ROW = 4  # calls of a part
_LISTS = 8  # of calls, from which a storm chooses: generating calls takes longer than making most of them


def play_random_calls(
    contract: Contract,
    begin: Callable[[], ScriptRun],
    handles: Callable[[], Handles],
    profile: str,
    *,
    shrinks: bool = True,
    accepts: Callable[[Step], bool] = lambda _: True,
) -> None:
    """Make random calls, of those that the store `accepts`.

    Raises:
        Violation: the store returned what the reference does not.
    """
    with handles() as probed:
        offered = [operation for operation in contract.operations if probed.has(FIRST, operation.name)]
    operations = [operation for operation in offered if operation.at_random]
    if not operations:
        pytest.skip("the store offers no operation that is called at random")

    def play(data: st.DataObject) -> None:
        with handles() as opened:
            ids = data.draw(st.sampled_from(_IDS) | _TWO_EDGES)
            steps = data.draw(scripts(contract, operations, ids))
            script = begin()

            def all_steps() -> Iterator[Step]:
                yield from [*steps, RESTART]
                yield from contract.observe([*ids, *script.timeline.generated_ids])

            for step in all_steps():
                if not accepts(step):
                    continue
                try:
                    script.run(opened, [step])
                except pytest.skip.Exception:
                    continue  # not offered

    search(play, EXAMPLES[profile], shrinks=shrinks)


def scripts(contract: Contract, operations: Sequence[Operation], ids: tuple[str, str]) -> st.SearchStrategy[list[Step]]:
    """Generate scripts: several calls in a row about one id, through one of several handles, again and again.

    They all have the same length, since hypothesis prefers short lists; they shrink by steps that are left out. A call
    may be made again, and what was done is often looked at.
    """
    first, other = ids
    edges = {id_: [call for call in edge_calls(contract, id_) if contract[call.name] in operations] for id_ in ids}
    one = {
        id_: st.lists(
            calls(operations, [id_]) | st.sampled_from(edges[id_]) if edges[id_] else calls(operations, [id_]),
            min_size=1,
            max_size=_IN_A_ROW,
        )
        for id_ in ids
    }
    about = st.sampled_from([first, first, other]).flatmap(one.__getitem__)
    reads = list(contract.reads(ids))
    twice = about.map(lambda made: [*made, made[-1]])
    kinds = {"": st.just([]), "calls": about, "twice": twice, "look": st.just(reads), RESTART: st.just(RESTART)}
    kind = st.sampled_from(["", *["calls"] * 6, "twice", "twice", "look", "look", RESTART])
    part = st.tuples(st.sampled_from([FIRST, FIRST, FIRST, "second", "third"]), kind.flatmap(kinds.__getitem__))
    whole = st.lists(part, min_size=_LENGTH, max_size=_LENGTH)
    return whole.map(lambda parts: [step for handle, made in parts for step in _via(handle, made)])


def _via(handle: str, made: Any) -> list[Step]:
    return [made] if made == RESTART else [ViaHandle(handle, call) for call in made]


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
