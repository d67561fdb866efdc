"""Behaviour that no clause of the suites asks for, on every backend that runs without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import NotFound, as_sync, samples
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.handles import EVERY_BACKEND, Home

pytestmark = pytest.mark.parametrize("backend", EVERY_BACKEND)

ROUND_TRIPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "EffectStore": (
        lambda store: store.save_checkpoint(samples.checkpoint()),
        lambda store: store.load_checkpoint("task-1"),
        samples.checkpoint(),
    ),
    "SnapshotStore": (
        lambda store: store.save(samples.snapshot()),
        lambda store: store.load(samples.key()),
        samples.snapshot(),
    ),
    "RunStore": (
        lambda store: store.create_run(samples.run()),
        lambda store: store.get_run("run-1"),
        samples.run(),
    ),
}
each = pytest.mark.parametrize("protocol", list(ROUND_TRIPS))


@each
def test_a_store_serves_one_event_loop_after_another(backend: str, protocol: str, tmp_path: Path) -> None:
    save, load, record = ROUND_TRIPS[protocol]
    store = Home(backend, protocol, tmp_path).open()

    async def use() -> Any:
        await save(store)
        return await load(store)

    assert asyncio.run(use()) == asyncio.run(use()) == record
    store.close()


@each
def test_closing_keeps_everything_and_may_be_repeated(backend: str, protocol: str, tmp_path: Path) -> None:
    save, load, record = ROUND_TRIPS[protocol]
    home = Home(backend, protocol, tmp_path)
    store = as_sync(home.open())
    save(store)
    store.close()
    store.close()
    with as_sync(home.open()) as other:
        assert load(store) == load(other) == record
    store.close()


@pytest.mark.parametrize("frozen_clock", ["1969-12-31T23:59:58.5Z"], indirect=True)
def test_seconds_before_1970_are_rounded_down(backend: str, tmp_path: Path, frozen_clock: FrozenClock) -> None:
    with as_sync(Home(backend, "EffectStore", tmp_path).open()) as store:
        store.mark_step_complete("task-1", "use-1", samples.effect("use-1"))
        assert store.load_checkpoint("task-1").updated_at == -2
    assert frozen_clock.now.timestamp() == -1.5


def test_edits_of_a_fork_may_be_an_iterator(backend: str, tmp_path: Path) -> None:
    with as_sync(Home(backend, "SnapshotStore", tmp_path).open()) as store:
        store.save(samples.snapshot("main", values={"a": 1}))
        run_id = store.fork(samples.key("main"), iter([("a", 2)]))
        assert re.fullmatch(r"run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run_id)
        assert store.latest("wf", run_id).values == {"a": 2}


def test_edits_of_a_fork_are_read_before_the_store_is(backend: str, tmp_path: Path) -> None:
    """An iterator may take its time, fail, or use the store itself: none of that may happen under a lock."""
    read = []

    def edits() -> Iterator[tuple[str, int]]:
        read.append(backend)
        yield "a", 2

    with as_sync(Home(backend, "SnapshotStore", tmp_path).open()) as store, pytest.raises(NotFound):
        store.fork(samples.key("missing"), edits())
    assert read == [backend]
