"""The paused contract: which runs wait for a human, and which worker has taken one up again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation, PossibleEffect
from pytest_wfstate.specs.strategies import st
from pytest_wfstate.stores.memory import MemoryPausedStore

_LONG = 3600  # seconds: no claim of a test is that old, unless its clock is frozen


def _some(handle: MemoryPausedStore, older_than: float | None = None) -> Iterable[PossibleEffect]:
    """A recovery is atomic for each run, not over all of them."""
    runs = list(handle._inflight)
    for size in range(1, len(runs)):
        for some in itertools.combinations(runs, size):
            yield functools.partial(MemoryPausedStore.recover_some, run_ids=some, older_than=older_than)


def _run(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


def _saved(ids: Sequence[str]) -> Any:
    return st.sampled_from([(samples.paused(one, iterations=number),) for one in ids for number in range(3)])


def _one(run_id: str) -> list[str]:
    return [run_id]


SAVE = Operation("save", _saved, mutates=True, required=True, keys=lambda paused: [paused.run_id])
LOAD = Operation("load", _run, required=True, keys=_one)
CLAIM = Operation("claim", _run, mutates=True, keys=_one)
RECOVER = Operation(
    "recover_orphaned",
    lambda _: st.sampled_from([(), (_LONG,)]),
    mutates=True,
    positional=0,
    keywords=("older_than",),
    partial_effects=_some,
    project=lambda *_: ...,
)
COMPLETE = Operation("complete", _run, mutates=True, keys=_one)
REMOVE = Operation("remove", _run, mutates=True, keys=_one)
LIST = Operation("list", lambda _: st.just(()), project=lambda paused, ids: [one for one in paused if one in ids])


def save(run_id: str, iterations: int = 1, **fields: Any) -> Call:
    """Save a paused run."""
    return SAVE(samples.paused(run_id, iterations=iterations, **fields))


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [LIST(), *(LOAD(one) for one in ids)]


PAUSED = Contract(
    "paused",
    [SAVE, LOAD, CLAIM, RECOVER, COMPLETE, REMOVE, LIST],
    reference=lambda generated: MemoryPausedStore(clock=generated.time),
    write=save,
    reads=reads,
    recovery=RECOVER(),
)
