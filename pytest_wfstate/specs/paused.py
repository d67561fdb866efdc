"""The paused contract: which runs wait for a human, and which worker has claimed one to resume it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation, PossibleEffect
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.stores.memory import MemoryPausedStore

_LONG = 3600  # seconds: no claim of a test is that old, unless its clock is frozen


def _partial_recoveries(handle: MemoryPausedStore, older_than: float | None = None) -> Iterable[PossibleEffect]:
    """Yield recoveries of some of the claimed runs: a recovery is atomic for each run, not for all of them."""
    claimed = list(handle._inflight)
    for size in range(1, len(claimed)):
        for run_ids in itertools.combinations(claimed, size):
            yield functools.partial(MemoryPausedStore.recover_some, run_ids=run_ids, older_than=older_than)


def _saves(ids: Sequence[str]) -> Any:
    return st.sampled_from([(samples.paused(run_id, iterations=number),) for run_id in ids for number in range(3)])


SAVE = Operation("save", _saves, mutates=True, required=True, keys=lambda paused: [paused.run_id])
LOAD = Operation("load", only_an_id, required=True, keys=first_id)
CLAIM = Operation("claim", only_an_id, mutates=True, keys=first_id)
RECOVER = Operation(
    "recover_orphaned",
    lambda _: st.sampled_from([(), (_LONG,)]),
    mutates=True,
    positional=0,
    keywords=("older_than",),
    partial_effects=_partial_recoveries,
    project=lambda *_: ...,
)
COMPLETE = Operation("complete", only_an_id, mutates=True, keys=first_id)
REMOVE = Operation("remove", only_an_id, mutates=True, keys=first_id)
LIST = Operation(
    "list", lambda _: st.just(()), project=lambda paused, ids: [run_id for run_id in paused if run_id in ids]
)


def save(run_id: str, iterations: int = 1, **fields: Any) -> Call:
    """Return a call that saves a paused run."""
    return SAVE(samples.paused(run_id, iterations=iterations, **fields))


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [LIST(), *(LOAD(run_id) for run_id in ids)]


PAUSED = Contract(
    "paused",
    [SAVE, LOAD, CLAIM, RECOVER, COMPLETE, REMOVE, LIST],
    reference=lambda generated: MemoryPausedStore(clock=generated.time),
    write=save,
    reads=reads,
    recovery=RECOVER(),
)
