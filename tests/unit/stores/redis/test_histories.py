"""Concurrent workers that lose connections or their server: some order of their calls explains all results."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_wfstate import LostConnection, Server
from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.faults.servers.proxy import Proxy, When
from pytest_wfstate.oracle.history import Entry, Errored, Outcome, Returned
from pytest_wfstate.oracle.linearize import check
from pytest_wfstate.oracle.model import REFUSALS, ReferenceModel, refused
from pytest_wfstate.oracle.values import plain
from pytest_wfstate.specs import effects, paused, resume, runs, snapshots
from tests.unit.stores.handles import call as called
from tests.unit.stores.redis.scripts import EFFECTS, PAUSED, RESUME, RUNS, SNAPSHOTS, Call, Kind

CONTRACTS = [
    (EFFECTS, effects.EFFECTS),
    (PAUSED, paused.PAUSED),
    (RESUME, resume.RESUME),
    (RUNS, runs.RUNS),
    (SNAPSHOTS, snapshots.SNAPSHOTS),
]
each = pytest.mark.parametrize(("kind", "contract"), CONTRACTS, ids=[str(kind) for kind, _ in CONTRACTS])
WORKERS, CALLS = 3, 6
CUTS: list[When | None] = [None, None, "before", "after", "after"]


def made(client: str, store: Any, one: Call) -> Entry:
    """Make a call, and record when, and its outcome."""
    name, *args = one
    begin = time.perf_counter()
    outcome: Outcome
    try:
        outcome = Returned(plain(called(store, name, *args)))
    except LostConnection as error:
        outcome = Errored(str(error))
    except REFUSALS as error:
        outcome = refused(error)
    return Entry(client, name, tuple(args), begin, time.perf_counter(), outcome)


class Worker(threading.Thread):
    """Makes some calls, and before each does what is to be done to its connection; gives up when a call is lost."""

    def __init__(self, name: str, store: Any, calls: Sequence[Call], harm: Callable[[], None]) -> None:
        super().__init__(name=name)
        self._store = store
        self._calls = calls
        self._harm = harm
        self.entries: list[Entry] = []

    def run(self) -> None:
        for one in self._calls:
            self._harm()
            self.entries.append(made(self.name, self._store, one))
            if isinstance(self.entries[-1].outcome, Errored):
                return


def play(
    kind: Kind, contract: Contract, url: str, server: Server, chance: random.Random, harms: Sequence[Callable[[], None]]
) -> list[Entry]:
    """Let a worker for each fault make random calls at `url`, then read everything."""
    pool = kind.calls("a")
    with kind.open(server.url) as after:
        stores = [kind.open(url, after._prefix) for _ in harms]
        for store in stores:
            made("before", store, kind.calls("warm")[0])  # so that what is lost is a call, not a login
        workers = [
            Worker(f"worker {number}", store, chance.choices(pool, k=CALLS), harm)
            for number, (store, harm) in enumerate(zip(stores, harms, strict=True))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for store in stores:
            store.close()
        looks = [made("afterwards", after, (one.name, *one.args)) for one in contract.observe(["a"])]
    return [*(entry for worker in workers for entry in worker.entries), *looks]


@each
@pytest.mark.parametrize("seed", range(12))
def test_connections_that_are_cut_again_and_again(
    redis_server: Server, kind: Kind, contract: Contract, seed: int
) -> None:
    chance = random.Random(seed)
    with Proxy(redis_server.url) as proxy:
        harm = Cuts(proxy, chance)
        entries = play(kind, contract, proxy.url, redis_server, chance, [harm] * WORKERS)
    assert check(entries, ReferenceModel(contract)) is None


class Cuts:
    """Cuts a connection now and then: that of whoever sends the next message."""

    def __init__(self, proxy: Proxy, chance: random.Random) -> None:
        self._proxy = proxy
        self._cuts = (chance.choice(CUTS) for _ in itertools.count())
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            when = next(self._cuts)
        if when is not None:
            self._proxy.cut(when)


@each
@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_is_killed_among_calls(redis_server: Server, kind: Kind, contract: Contract, seed: int) -> None:
    harms: list[Callable[[], None]] = [Kills(redis_server, at=CALLS // 2), *[lambda: None] * (WORKERS - 1)]
    entries = play(kind, contract, redis_server.url, redis_server, random.Random(seed), harms)
    assert check(entries, ReferenceModel(contract)) is None


class Kills:
    """Kills the server before the n-th call of a worker, and starts it again, while the others are at work."""

    def __init__(self, server: Server, at: int) -> None:
        self._server = server
        self._calls = itertools.count()
        self._at = at

    def __call__(self) -> None:
        if next(self._calls) == self._at:
            self._server.kill()
            self._server.restart()
