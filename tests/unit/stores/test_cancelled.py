"""Our stores can be cancelled at any await: a call is all or nothing, and has ended when CancelledError is raised.

The suites of the other tests call most stores as what they are at heart, without a loop. Here they are awaited.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import pytest_wfstate as wf
from pytest_wfstate import as_async, samples
from pytest_wfstate.faults.cancel import Cancellation
from pytest_wfstate.stores.base import Store, threaded
from pytest_wfstate.suites import SUITES
from pytest_wfstate.suites.clauses import clauses
from tests.unit.suites.only import only

NAMES = {"effects": "Effect", "paused": "Paused", "resume": "Resume", "runs": "Run", "snapshots": "Snapshot"}


def store_of(backend: str, contract: str) -> Callable[..., Any]:
    """Return what opens a store; one with blocking methods is made async."""
    make = getattr(wf, f"{backend}{NAMES[contract]}Store")
    return (
        make
        if contract in ("effects", "runs", "snapshots")
        else lambda *args, **kwargs: as_async(make(*args, **kwargs))
    )


class InSqlite:
    def open(self: Any, home: Path) -> Any:
        return store_of("Sql", self.contract.name)(f"sqlite:///{home}/state.db")


class OnFiles:
    def open(self: Any, home: Path) -> Any:
        return store_of("File", self.contract.name)(home)


class OnRedis:
    medium = "server"
    server = "redis_server"

    def open(self: Any, home: Path) -> Any:
        return store_of("Redis", self.contract.name)(self.url, prefix=home.name)


class OnPostgres:
    medium = "server"
    server = "postgres_server"

    @pytest.fixture(autouse=True)
    def _have_engine(self: Any, _wfstate_item: None) -> Any:
        self.engine = create_engine(self.url.replace("postgresql", "postgresql+psycopg", 1))
        yield
        self.engine.dispose()

    def open(self: Any, home: Path) -> Any:
        return store_of("Sql", self.contract.name)(self.engine, prefix=home.name)


PLACES: dict[type, tuple[str, ...]] = {
    OnFiles: ("effects", "paused", "resume", "runs"),
    InSqlite: ("effects", "runs"),
    OnRedis: ("effects", "runs"),
    OnPostgres: ("effects", "runs", "snapshots"),
}
"""Where other tests do not await a store."""


def suite_in(place: type, contract: str) -> type:
    suite: type = type(f"Test{place.__name__}{NAMES[contract]}", (place, SUITES[contract]), {})
    return only(*(clause.test for clause in clauses(suite) if clause.fault == "cancel"))(suite)


for place, contracts in PLACES.items():
    globals().update((suite.__name__, suite) for suite in (suite_in(place, contract) for contract in contracts))


class Slow(Store):
    """A store with a call that ends when it is allowed to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.begun, self.may_end, self.has_ended = threading.Event(), threading.Event(), False

    @threaded
    def work(self) -> str:
        self.begun.set()
        assert self.may_end.wait(60)
        self.has_ended = True
        if self.fails:
            raise OSError("the disk is full")
        return "done"


def cancelled_in_thread(store: Slow, times: int) -> None:
    async def main() -> None:
        task = asyncio.create_task(store.work())
        await asyncio.to_thread(store.begun.wait, 60)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        store.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_a_call_ends_before_its_caller_sees_that_it_is_cancelled(times: int) -> None:
    store = Slow()
    cancelled_in_thread(store, times)
    assert store.has_ended


def test_an_error_of_a_cancelled_call_is_not_logged_as_one_that_nobody_saw(caplog: pytest.LogCaptureFixture) -> None:
    cancelled_in_thread(Slow(fails=True), 1)
    gc.collect()
    assert caplog.text == ""


CALLS: dict[str, Callable[[Path], Any]] = {
    "file": lambda home: wf.FileEffectStore(home).save_checkpoint(samples.checkpoint()),
    "as_async": lambda home: as_async(wf.FilePausedStore(home)).save(samples.paused()),
    "sqlite": lambda home: wf.SqlRunStore(f"sqlite:///{home}/state.db").create_run(samples.run()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_goes_on_in_the_background_after_a_call_was_cancelled(
    call: Callable[[Path], Any], tmp_path: Path
) -> None:
    moments = []
    for nth in itertools.count(1):
        with Cancellation(nth) as cancellation:
            try:
                asyncio.run(cancellation.call(call(tmp_path)))
            except asyncio.CancelledError:
                moments.append(cancellation.struck.partition(" (")[0])
            assert cancellation.left == set()
        if not cancellation.struck:
            break
    assert moments[:2] == ["before its first step", "while a thread worked for it"]
    assert len(moments) >= 4
