"""The paused contract: which runs wait for a human, and which worker has claimed one to resume it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation, PossibleEffect, ResultOf
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.stores.memory import MemoryPausedStore

_LONG = 3600  # seconds: no claim of a test is that old, unless its clock is frozen


def _partial_recoveries(handle: MemoryPausedStore, older_than: float | None = None) -> Iterable[PossibleEffect]:
    """Yield recoveries of some of the claimed runs: a recovery is atomic for each run, not for all of them."""
    claimed = [run_id for run_id, run in handle._runs.items() if run.claim]
    for size in range(1, len(claimed)):
        for run_ids in itertools.combinations(claimed, size):
            yield functools.partial(MemoryPausedStore.recover_some, run_ids=run_ids, older_than=older_than)


def _saves(ids: Sequence[str]) -> Any:
    return st.sampled_from([(samples.paused(run_id, iterations=number),) for run_id in ids for number in range(3)])


def _renewals(ids: Sequence[str]) -> Any:
    return st.sampled_from([(run_id, ResultOf("token", nth)) for run_id in ids for nth in (0, 1, -1)])


def _completions(ids: Sequence[str]) -> Any:
    return only_an_id(ids) | _renewals(ids)


SAVE = Operation("save", _saves, mutates=True, returns_nothing=True, required=True, keys=lambda paused: [paused.run_id])
LOAD = Operation("load", only_an_id, required=True, keys=first_id)
CLAIM = Operation("claim", only_an_id, mutates=True, keys=first_id)
RECOVER = Operation(
    "recover_orphaned",
    lambda _: st.sampled_from([(), (_LONG,), (0,)]),
    mutates=True,
    positional=0,
    keywords=("older_than",),
    partial_effects=_partial_recoveries,
    project=lambda *_: ...,
)
COMPLETE = Operation("complete", _completions, mutates=True, keywords=("token",), keys=first_id)
# It changes nothing in a store. The reference makes the token when it is first asked for, and then it must be the one
# that the store has made.
TOKEN = Operation("token", only_an_id, mutates=True, keys=first_id, in_storms=False)
RENEW = Operation("renew", _renewals, mutates=True, keywords=("token",), keys=first_id, in_storms=False)
REMOVE = Operation("remove", only_an_id, mutates=True, returns_nothing=True, keys=first_id)
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
    [SAVE, LOAD, CLAIM, RECOVER, COMPLETE, REMOVE, LIST, TOKEN, RENEW],
    reference=lambda generated: MemoryPausedStore(clock=generated.time, new_token=generated.id),
    write=save,
    reads=reads,
    recovery=RECOVER(),
)
