"""The threads of async stores: their own, and enough of them to wait in."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio

from pytest_wfstate import FileEffectStore, FileRunStore, FileSnapshotStore, MemoryPausedStore, as_async, samples
from pytest_wfstate.stores.base import Store, threaded
from pytest_wfstate.stores.file.lock import Kind, locked
from pytest_wfstate.stores.threads import MOST_THREADS


class Refusing(ThreadPoolExecutor):
    """A default pool that is used up."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("asyncio's default pool was used")


class Meeting(Store):
    """A store whose calls wait for each other."""

    def __init__(self, calls: int) -> None:
        self._barrier = threading.Barrier(calls)

    @threaded
    def meet(self) -> int:
        return self._barrier.wait(60)

    @threaded
    def ident(self) -> int:
        return threading.get_ident()


def sqlite_runs(home: Path) -> Any:
    sql = pytest.importorskip("pytest_wfstate.stores.sql", reason="needs the extra sql")
    return sql.SqlRunStore(f"sqlite:///{home}/state.db")


CALLS: dict[str, Callable[[Path], Any]] = {
    "effects": lambda home: FileEffectStore(home).load_checkpoint("a"),
    "snapshots": lambda home: FileSnapshotStore(home).save(samples.snapshot("a")),
    "runs": lambda home: FileRunStore(home).create_run(samples.run("a")),
    "sqlite": lambda home: sqlite_runs(home).create_run(samples.run("a")),
    "as_async": lambda _: as_async(MemoryPausedStore()).save(samples.paused("a")),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_store_uses_the_default_pool(call: Callable[[Path], Any], tmp_path: Path) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(Refusing())
        await call(tmp_path)

    asyncio.run(main())


def test_calls_that_wait_for_a_locked_folder_leave_the_default_pool_to_others(tmp_path: Path) -> None:
    store = FileEffectStore(tmp_path, "process")
    uses = [f"use-{n}" for n in range(40)]

    async def main() -> None:
        with locked(tmp_path, Kind.EXCLUSIVE):
            marks = [asyncio.create_task(store.mark_step_complete("a", use, samples.effect(use))) for use in uses]
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "looked up") == "looked up"
            assert not any(mark.done() for mark in marks)
        await asyncio.gather(*marks)
        task = await store.load_checkpoint("a")
        assert task is not None
        assert task.completed_tool_ids == set(uses)

    asyncio.run(main())


def test_a_store_has_threads_for_many_calls_that_wait() -> None:
    async def main() -> list[int]:
        store = Meeting(MOST_THREADS)
        return await asyncio.gather(*(store.meet() for _ in range(MOST_THREADS)))

    assert sorted(asyncio.run(main())) == list(range(MOST_THREADS))


def test_calls_of_one_store_do_not_wait_for_the_threads_of_another() -> None:
    async def main() -> None:
        full, other = Meeting(MOST_THREADS + 1), Meeting(1)
        waiting = [asyncio.create_task(full.meet()) for _ in range(MOST_THREADS)]
        await asyncio.sleep(0)
        assert await other.meet() == 0
        full._barrier.abort()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {threading.BrokenBarrierError}

    asyncio.run(main())


def test_a_store_has_its_own_limit_in_trio() -> None:
    async def main() -> None:
        limiter = trio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 1
        async with limiter:  # nobody else gets a thread
            assert await Meeting(1).meet() == 0

    trio.run(main)


def test_a_store_is_used_in_a_child_that_was_forked_after_its_first_call() -> None:
    store = Meeting(1)
    asyncio.run(store.meet())

    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(store.meet()) == 0 else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(store.meet()) == 0


def test_a_closed_store_ends_its_threads_and_starts_new_ones_when_it_is_used() -> None:
    store = Meeting(1)
    others = set(threading.enumerate())
    asyncio.run(store.ident())
    (thread,) = set(threading.enumerate()) - others

    store.close()
    store.close()
    gc.collect()
    thread.join(60)

    assert not thread.is_alive()
    assert asyncio.run(store.ident()) != threading.get_ident()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_store_that_has_threads_can_be_copied(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    store = FileEffectStore(tmp_path)
    asyncio.run(store.save_checkpoint(samples.checkpoint("a")))

    assert asyncio.run(copied(store).load_checkpoint("a")) == samples.checkpoint("a")
