from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from pytest_wfstate import (
    InvalidId,
    LoopDeadlock,
    MemoryPausedStore,
    MemoryRunStore,
    NotFound,
    ResumeStore,
    RunStore,
    as_async,
    as_sync,
    samples,
)
from pytest_wfstate.stores.base import Store, threaded

SYNC_OF_BOTH = {"sync": MemoryPausedStore, "async": MemoryRunStore}


class Spy:
    """A sync or async store that records in which thread it worked and whether it was closed."""

    name = "spy"

    def __init__(self) -> None:
        self.closed = 0

    def blocking(self) -> int:
        return threading.get_ident()

    async def awaited(self) -> int:
        return threading.get_ident()

    def deferred(self) -> Any:
        return self.awaited()

    def close(self) -> None:
        self.closed += 1


class Closing(Spy):
    """A store whose `close` is to be awaited."""

    async def close(self) -> None:  # type: ignore[override]
        self.closed += 1


class Threaded(Store):
    """A store that does its work in threads."""

    @threaded
    def work(self) -> int:
        return threading.get_ident()


class TestAsSync:
    def test_an_async_store_blocks(self, run_store: RunStore) -> None:
        store = as_sync(run_store)

        store.create_run(samples.run())

        assert store.get_run("run-1") == samples.run()

    def test_a_sync_store_stays_as_it_is(self, resume_store: ResumeStore) -> None:
        store = as_sync(resume_store)

        store.save(samples.resume_point())

        assert store.load("run-1") == samples.resume_point()

    def test_what_is_blocking_at_heart_is_done_in_the_thread_of_the_caller(self) -> None:
        assert as_sync(Threaded()).work() == threading.get_ident()

    def test_a_method_around_one_that_is_blocking_at_heart_is_not_left_out(self) -> None:
        class Around(Threaded):
            @functools.wraps(Threaded.work)
            async def work(self) -> Any:  # type: ignore[override]
                return ["around", await super().work()]

        assert as_sync(Around()).work()[0] == "around"

    def test_works_inside_a_running_loop(self, run_store: RunStore) -> None:
        store = as_sync(run_store)

        async def use() -> Any:
            store.create_run(samples.run())
            return store.get_run("run-1")

        assert asyncio.run(use()) == samples.run()

    def test_works_from_several_threads_at_once(self, run_store: RunStore) -> None:
        store = as_sync(run_store)
        threads = [threading.Thread(target=store.create_run, args=[samples.run(f"run-{n}")]) for n in range(8)]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [store.get_run(f"run-{n}") for n in range(8)] == [samples.run(f"run-{n}") for n in range(8)]

    def test_a_call_that_would_wait_for_itself_is_refused(self) -> None:
        inner = as_sync(Spy())

        class Outer:
            async def awaited(self) -> Any:
                return inner.awaited()

        outer = as_sync(Outer())

        with pytest.raises(LoopDeadlock, match="without as_sync"):
            outer.awaited()
        assert inner.awaited() != threading.get_ident()

    def test_all_stores_of_a_process_share_one_loop(self) -> None:
        assert as_sync(Spy()).awaited() == as_sync(Spy()).awaited() == as_sync(Spy()).deferred()

    def test_threads_that_ask_for_the_loop_at_once_share_it(self) -> None:
        assert in_child(lambda: len(set(at_once(8, lambda: as_sync(Spy()).awaited()))) == 1)  # which has no loop yet

    def test_another_handle_blocks_too(self) -> None:
        store = as_sync(MemoryRunStore())

        store.handle().create_run(samples.run())

        assert store.get_run("run-1") == samples.run()

    def test_blocking_methods_run_where_they_are_called(self) -> None:
        assert as_sync(Spy()).blocking() == threading.get_ident()
        assert as_sync(Spy()).awaited() != threading.get_ident()

    def test_errors_come_through(self, run_store: RunStore) -> None:
        store = as_sync(run_store)

        with pytest.raises(NotFound, match="there is no run 'run-1'"):
            store.update_context("run-1", {})
        with pytest.raises(InvalidId):
            store.get_run("")

    def test_works_after_an_error(self, run_store: RunStore) -> None:
        store = as_sync(run_store)
        with pytest.raises(NotFound):
            store.update_context("run-1", {})

        store.create_run(samples.run())

        assert store.get_run("run-1") == samples.run()

    @pytest.mark.parametrize("kind", [Spy, Closing])
    def test_is_a_context_manager_that_closes(self, kind: type[Spy]) -> None:
        spy = kind()

        with as_sync(spy) as store:
            assert store.blocking() == threading.get_ident()
            assert spy.closed == 0

        assert spy.closed == 1

    def test_closes_after_an_error_too_and_lets_it_through(self) -> None:
        spy = Spy()

        with pytest.raises(ZeroDivisionError), as_sync(spy):
            raise ZeroDivisionError

        assert spy.closed == 1

    def test_returns_attributes_that_are_not_methods_as_they_are(self) -> None:
        assert as_sync(Spy()).name == "spy"

    def test_has_no_more_attributes_than_its_store(self) -> None:
        with pytest.raises(AttributeError, match="'Spy' object has no attribute 'unheard_of'"):
            as_sync(Spy()).unheard_of  # noqa: B018

    def test_methods_keep_their_names(self, run_store: RunStore) -> None:
        assert as_sync(run_store).create_run.__name__ == "create_run"

    def test_repr_names_the_store(self) -> None:
        assert repr(as_sync(MemoryRunStore())).startswith("sync <pytest_wfstate.stores.memory.runs.MemoryRunStore")

    def test_can_be_copied(self) -> None:
        store = as_sync(MemoryRunStore())
        store.create_run(samples.run())

        assert copy.copy(store).get_run("run-1") == samples.run()


class TestAsAsync:
    def test_a_sync_store_is_awaited(self, resume_store: ResumeStore) -> None:
        store = as_async(resume_store)

        async def use() -> Any:
            await store.save(samples.resume_point())
            return await store.load("run-1")

        assert asyncio.run(use()) == samples.resume_point()

    def test_an_async_store_stays_as_it_is(self, run_store: RunStore) -> None:
        store = as_async(run_store)

        async def use() -> Any:
            await store.create_run(samples.run())
            return await store.get_run("run-1")

        assert asyncio.run(use()) == samples.run()

    def test_works_in_one_loop_after_another(self, resume_store: ResumeStore) -> None:
        store = as_async(resume_store)

        asyncio.run(store.save(samples.resume_point()))

        assert asyncio.run(store.load("run-1")) == samples.resume_point()

    def test_works_under_trio(self, resume_store: ResumeStore) -> None:
        store = as_async(resume_store)

        trio.run(store.save, samples.resume_point())

        assert trio.run(store.load, "run-1") == samples.resume_point()

    def test_another_handle_is_awaited_too(self) -> None:
        store = as_async(MemoryPausedStore())

        async def use() -> Any:
            other = await store.handle()
            await other.save(samples.paused())
            return await store.load("run-1")

        assert asyncio.run(use()) == samples.paused()

    def test_blocking_methods_do_not_block_the_loop(self) -> None:
        assert asyncio.run(as_async(Spy()).blocking()) != threading.get_ident()
        assert asyncio.run(as_async(Spy()).awaited()) == threading.get_ident()
        assert asyncio.run(as_async(Spy()).deferred()) == threading.get_ident()

    def test_errors_come_through(self, resume_store: ResumeStore) -> None:
        with pytest.raises(InvalidId, match="run id '' is empty"):
            asyncio.run(as_async(resume_store).load(""))

    @pytest.mark.parametrize("kind", [Spy, Closing])
    def test_is_a_context_manager_that_closes(self, kind: type[Spy]) -> None:
        spy = kind()

        async def use() -> int:
            async with as_async(spy) as store:
                await store.blocking()
                return spy.closed

        assert asyncio.run(use()) == 0
        assert spy.closed == 1

    def test_returns_attributes_that_are_not_methods_as_they_are(self) -> None:
        assert as_async(Spy()).name == "spy"

    def test_repr_names_the_store(self) -> None:
        assert repr(as_async(MemoryRunStore())).startswith("async <pytest_wfstate.stores.memory.runs.MemoryRunStore")


class TestThereAndBack:
    def test_a_sync_store(self, resume_store: ResumeStore) -> None:
        store = as_sync(as_async(resume_store))

        store.save(samples.resume_point())

        assert resume_store.load("run-1") == store.load("run-1") == samples.resume_point()

    def test_an_async_store(self, run_store: RunStore) -> None:
        store = as_async(as_sync(run_store))

        asyncio.run(store.create_run(samples.run()))

        assert asyncio.run(store.get_run("run-1")) == samples.run()


class TestContextManagers:
    """Every store is a sync and an async context manager."""

    @pytest.mark.parametrize("kind", SYNC_OF_BOTH.values(), ids=list(SYNC_OF_BOTH))
    def test_sync(self, kind: type[Any]) -> None:
        store = kind()

        with store as same:
            assert same is store

    @pytest.mark.parametrize("kind", SYNC_OF_BOTH.values(), ids=list(SYNC_OF_BOTH))
    def test_async(self, kind: type[Any]) -> None:
        store = kind()

        async def enter() -> Any:
            async with store as same:
                return same

        assert asyncio.run(enter()) is store


class TestFork:
    def test_a_child_uses_a_store_that_its_parent_used(self, run_store: RunStore) -> None:
        store = as_sync(run_store)
        store.create_run(samples.run())

        assert in_child(lambda: store.get_run("run-1") == samples.run())

    @pytest.mark.parametrize("run_store", ["file"], indirect=True)
    def test_a_parent_sees_what_its_child_wrote(self, run_store: RunStore) -> None:
        store = as_sync(run_store)
        store.create_run(samples.run("by parent"))

        assert in_child(lambda: store.create_run(samples.run("by child")) is None)

        assert store.get_run("by child") == samples.run("by child")

    def test_a_grandchild_can_too(self, run_store: RunStore) -> None:
        store = as_sync(run_store)
        store.create_run(samples.run())

        assert in_child(lambda: store.get_run("run-1") is not None and in_child(lambda: store.get_run("x") is None))


def at_once(count: int, call: Callable[[], Any]) -> list[Any]:
    """Make the call in several threads at the same time, and return their results."""
    ready = threading.Barrier(count)
    results: list[Any] = []

    def run() -> None:
        ready.wait()
        results.append(call())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_child(check: Callable[[], bool]) -> bool:
    """Fork, and return whether `check` held in the child. A child that hangs is ended by its own alarm."""
    with allow_fork():
        child = os.fork()
    if child == 0:
        held = False
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            held = check()
        finally:
            os._exit(0 if held else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextlib.contextmanager
def allow_fork() -> Iterator[None]:
    """Python 3.12 and later warn of a fork beside threads: of as_sync's loop, here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
