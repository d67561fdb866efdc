"""The queue contract: work that waits for a worker, oldest first, and work that a worker has taken."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_wfstate.contracts.base import Call, Contract, Operation, PossibleEffect, ResultOf
from pytest_wfstate.specs.arguments import first_id, st
from pytest_wfstate.specs.random_values import any_json
from pytest_wfstate.stores.memory import MemoryQueueStore

_LONG = 3600  # seconds: no take of a test is that long ago, unless its clock is frozen


def _partial_recoveries(handle: MemoryQueueStore, older_than: float | None = None) -> Iterable[PossibleEffect]:
    """Yield recoveries of some of the taken items: a recovery is atomic for each item, not for all of them."""
    taken = [item_id for item_id, entry in handle._entries.items() if entry.token is not None]
    for size in range(1, len(taken)):
        for item_ids in itertools.combinations(taken, size):
            yield functools.partial(MemoryQueueStore.recover_some, item_ids=item_ids, older_than=older_than)


def _puts(ids: Sequence[str]) -> Any:
    return st.sampled_from([put(item_id, number).args for item_id in ids for number in range(2)])


def _nothing(_: Sequence[str]) -> Any:
    return st.just(())


def _ends(ids: Sequence[str]) -> Any:
    return st.sampled_from([(item_id, ResultOf("take", nth)) for item_id in ids for nth in (0, -2, -1)])


def _any_value(item_id: str) -> Any:
    return any_json().map(lambda value: (item_id, value))


PUT = Operation(
    "put",
    _puts,
    mutates=True,
    returns_nothing=True,
    positional=2,
    required=True,
    keys=first_id,
    values=_any_value,
)
TAKE = Operation("take", _nothing, mutates=True, positional=0, required=True)
DONE = Operation("done", _ends, mutates=True, keywords=("token",), keys=first_id, in_storms=False)
RETRY = Operation("retry", _ends, mutates=True, keywords=("token",), keys=first_id, in_storms=False)
RECOVER = Operation(
    "recover",
    lambda _: st.sampled_from([(), (_LONG,)]),
    mutates=True,
    positional=0,
    keywords=("older_than",),
    partial_effects=_partial_recoveries,
)
SIZE = Operation("size", _nothing, positional=0)
LIST = Operation("list", _nothing, positional=0)


def put(item_id: str, number: int = 1) -> Call:
    """Return a call that puts an item."""
    return PUT(item_id, {"order": number, "lines": [f"line {number}"]})


QUEUE = Contract(
    "queue",
    [PUT, TAKE, DONE, RETRY, RECOVER, SIZE, LIST],
    reference=lambda generated: MemoryQueueStore(clock=generated.time, new_token=generated.id),
    write=put,
    reads=lambda _: [LIST(), SIZE()],
    recovery=RECOVER(),
)
