"""Workers at once, whose connections are cut again and again: some order of their calls explains what came of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pytest_wfstate import LostConnection, Server
from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.faults.proxy import Proxy, When
from pytest_wfstate.oracle.history import Entry, Failed, Outcome, Returned
from pytest_wfstate.oracle.linearize import check
from pytest_wfstate.oracle.specification import REFUSALS, Specification, plain, refused
from pytest_wfstate.suites import effects, paused, resume, runs, snapshots
from tests.unit.stores.handles import call as called
from tests.unit.stores.redis.scripts import EFFECTS, PAUSED, RESUME, RUNS, SNAPSHOTS, Call, Kind

CONTRACTS = [
    (EFFECTS, effects.EFFECTS),
    (PAUSED, paused.PAUSED),
    (RESUME, resume.RESUME),
    (RUNS, runs.RUNS),
    (SNAPSHOTS, snapshots.SNAPSHOTS),
]
WORKERS, CALLS = 3, 6
CUTS: list[When | None] = [None, None, "before", "after", "after"]


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as one:
        yield one


def made(client: str, store: Any, one: Call) -> Entry:
    """Make a call, and note when, and what came of it."""
    name, *args = one
    begin = time.perf_counter()
    outcome: Outcome
    try:
        outcome = Returned(plain(called(store, name, *args)))
    except LostConnection as error:
        outcome = Failed(str(error))
    except REFUSALS as error:
        outcome = refused(error)
    return Entry(client, name, tuple(args), begin, time.perf_counter(), outcome)


class Worker(threading.Thread):
    """Makes some calls, each of which may meet a cut: its own, or that of whoever sends the next message."""

    def __init__(self, name: str, store: Any, calls: Sequence[Call], proxy: Proxy, chance: random.Random) -> None:
        super().__init__(name=name)
        self._store = store
        self._calls = calls
        self._proxy = proxy
        self._cuts = [chance.choice(CUTS) for _ in calls]
        self.entries: list[Entry] = []

    def run(self) -> None:
        for one, when in zip(self._calls, self._cuts, strict=True):
            if when is not None:
                self._proxy.cut(when)
            self.entries.append(made(self.name, self._store, one))


def play(kind: Kind, contract: Contract, proxy: Proxy, server: Server, chance: random.Random) -> list[Entry]:
    """Have workers make random calls, then look at all there is."""
    pool = kind.calls("a")
    with kind.open(server.url) as after:
        stores = [kind.open(proxy.url, after._prefix) for _ in range(WORKERS)]
        for store in stores:
            made("before", store, kind.calls("warm")[0])  # so that what is cut is a call, not a login
        workers = [
            Worker(f"worker {number}", store, chance.choices(pool, k=CALLS), proxy, chance)
            for number, store in enumerate(stores)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        proxy.cut_nothing()
        for store in stores:
            store.close()
        looks = [made("afterwards", after, (one.name, *one.args)) for one in contract.observe(["a"])]
    return [*(entry for worker in workers for entry in worker.entries), *looks]


@pytest.mark.parametrize(("kind", "contract"), CONTRACTS, ids=[str(kind) for kind, _ in CONTRACTS])
@pytest.mark.parametrize("seed", range(25))
def test_workers_that_lose_their_connections_come_to_what_some_order_explains(
    redis_server: Server, proxy: Proxy, kind: Kind, contract: Contract, seed: int
) -> None:
    entries = play(kind, contract, proxy, redis_server, random.Random(seed))
    assert check(entries, Specification(contract)) is None
