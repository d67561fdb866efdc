"""A flusher that writes now and then gets the same verdict whether the workload is fast or slow.

A fast workload is over before its flusher has written anything; a slow one is overtaken by it. What is wrong only in
one of these cases is found in both.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import read, save, write

PERIOD = 0.02
Flush = Callable[[], None]


class Buffer:
    """A note that is saved some time after it was taken, and at the latest when the buffer is closed."""

    def __init__(self, home: Path, save: Callable[[Path, str], None]) -> None:
        self._home = home
        self._save = save
        self._taken: list[str] = []

    def take(self, text: str) -> None:
        self._taken.append(text)

    def flush(self) -> None:
        while self._taken:
            self._save(self._home, self._taken.pop())

    def close(self) -> None:
        if self._taken:
            save(self._home, self._taken.pop())


def save_in_place(home: Path, text: str) -> None:
    """Save a note so that a crash in between loses the old and the new one."""
    write(home / "note", text.encode())


def note_is_whole(disk: Disk) -> None:
    assert read(disk.home) in ("old", "new")


def acknowledged_note_is_kept(disk: Disk) -> None:
    assert not disk.acked or read(disk.home) == "new"


@contextlib.contextmanager
def in_thread(run: Callable[[], None], stop: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    yield
    stop()
    thread.join()


def by_event(flush: Flush) -> AbstractContextManager[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PERIOD):
            flush()

    return in_thread(run, stop.set)


def by_condition(flush: Flush) -> AbstractContextManager[None]:
    stop: list[bool] = []

    def run() -> None:
        condition = threading.Condition()
        while not stop:
            with condition:
                condition.wait(PERIOD)
            if not stop:
                flush()

    return in_thread(run, lambda: stop.append(True))


def by_sleep(flush: Flush) -> AbstractContextManager[None]:
    stop: list[bool] = []

    def run() -> None:
        while not stop:
            time.sleep(PERIOD)
            if not stop:
                flush()

    return in_thread(run, lambda: stop.append(True))


def by_queue(flush: Flush, orders: Any = None) -> AbstractContextManager[None]:
    orders = orders or queue.Queue()

    def run() -> None:
        while True:
            try:
                orders.get(timeout=PERIOD)
            except queue.Empty:
                flush()
            else:
                return

    return in_thread(run, lambda: orders.put("stop"))


def by_simple_queue(flush: Flush) -> AbstractContextManager[None]:
    return by_queue(flush, queue.SimpleQueue())


def by_join(flush: Flush) -> AbstractContextManager[None]:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()

    def run() -> None:
        other.join(PERIOD)
        while other.is_alive():
            flush()
            other.join(PERIOD)

    return in_thread(run, stop.set)


def by_lock(flush: Flush) -> AbstractContextManager[None]:
    stop = threading.Semaphore(0)

    def run() -> None:
        while not stop.acquire(timeout=PERIOD):
            flush()

    return in_thread(run, stop.release)


@contextlib.contextmanager
def by_timer(flush: Flush) -> Iterator[None]:
    timer = threading.Timer(PERIOD, flush)
    timer.start()
    yield
    timer.cancel()
    timer.join()


@contextlib.contextmanager
def by_pool(flush: Flush) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PERIOD):
            flush()

    with ThreadPoolExecutor() as pool:
        pool.submit(run)
        yield
        stop.set()


@contextlib.contextmanager
def by_result(flush: Flush) -> Iterator[None]:
    stop: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        while True:
            try:
                stop.result(PERIOD)
            except TimeoutError:
                flush()
            else:
                return

    with ThreadPoolExecutor() as pool:
        pool.submit(run)
        yield
        stop.set_result(None)


@contextlib.asynccontextmanager
async def by_task(flush: Flush) -> AsyncIterator[None]:
    async def run() -> None:
        while True:
            await asyncio.sleep(PERIOD)
            flush()

    task = asyncio.create_task(run())
    yield
    task.cancel()


@contextlib.asynccontextmanager
async def by_wait_for(flush: Flush) -> AsyncIterator[None]:
    stop = asyncio.Event()

    async def run() -> None:
        while True:
            try:
                await asyncio.wait_for(stop.wait(), PERIOD)
            except TimeoutError:
                flush()
            else:
                return

    task = asyncio.create_task(run())
    yield
    stop.set()
    await task


@contextlib.asynccontextmanager
async def by_timeout(flush: Flush) -> AsyncIterator[None]:
    stop = asyncio.Event()

    async def run() -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(PERIOD):
                    await stop.wait()
            except TimeoutError:
                flush()

    task = asyncio.create_task(run())
    yield
    stop.set()
    await task


@contextlib.asynccontextmanager
async def by_wait(flush: Flush) -> AsyncIterator[None]:
    stop = asyncio.get_running_loop().create_future()

    async def run() -> None:
        while not stop.done():
            _, pending = await asyncio.wait([stop], timeout=PERIOD)
            if pending:
                flush()

    task = asyncio.create_task(run())
    yield
    stop.set_result(None)
    await task


@contextlib.asynccontextmanager
async def by_call_later(flush: Flush) -> AsyncIterator[None]:
    timer = asyncio.get_running_loop().call_later(PERIOD, flush)
    yield
    timer.cancel()


@contextlib.asynccontextmanager
async def by_to_thread(flush: Flush) -> AsyncIterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PERIOD):
            flush()

    task = asyncio.create_task(asyncio.to_thread(run))
    await asyncio.sleep(0)
    yield
    stop.set()
    await task


@contextlib.asynccontextmanager
async def by_executor(flush: Flush) -> AsyncIterator[None]:
    stop: list[bool] = []

    def run() -> None:
        while not stop:
            time.sleep(PERIOD)
            if not stop:
                flush()

    job = asyncio.get_running_loop().run_in_executor(None, run)
    yield
    stop.append(True)
    await job


@contextlib.asynccontextmanager
async def by_short_jobs(flush: Flush) -> AsyncIterator[None]:
    async def run() -> None:
        while True:
            await asyncio.sleep(PERIOD)
            await asyncio.shield(asyncio.to_thread(flush))

    task = asyncio.create_task(run())
    yield
    task.cancel()
    await asyncio.wait([task])


THREADS: list[Callable[[Flush], AbstractContextManager[None]]] = [
    *(by_event, by_condition, by_sleep, by_queue, by_simple_queue, by_join, by_lock, by_timer, by_pool, by_result)
]
TASKS: list[Callable[[Flush], AbstractAsyncContextManager[None]]] = [
    *(by_task, by_wait_for, by_timeout, by_wait, by_call_later, by_to_thread, by_executor, by_short_jobs)
]
FAST, SLOW = 0, 3 * PERIOD  # how long the workload takes


def with_threads(
    flushing: Callable[[Flush], AbstractContextManager[None]],
    seconds: float,
    save: Callable[[Path, str], None],
    crash: Crash,
) -> Callable[[Path], None]:
    def workload(home: Path) -> None:
        buffer = Buffer(home, save)
        with flushing(buffer.flush):
            buffer.take("new")
            if seconds:
                time.sleep(seconds)
            crash.ack()
        buffer.close()

    return workload


def with_tasks(
    flushing: Callable[[Flush], AbstractAsyncContextManager[None]],
    seconds: float,
    save: Callable[[Path, str], None],
    crash: Crash,
) -> Callable[[Path], None]:
    async def workload(home: Path) -> None:
        buffer = Buffer(home, save)
        async with flushing(buffer.flush):
            buffer.take("new")
            await asyncio.sleep(seconds)
            crash.ack()
        buffer.close()

    return lambda home: asyncio.run(workload(home))


def workload_with(flushing: Any, seconds: float, save: Callable[[Path, str], None], crash: Crash) -> Any:
    make = cast("Any", with_threads if flushing in THREADS else with_tasks)
    return make(flushing, seconds, save, crash)


@pytest.mark.parametrize(
    ("flushing", "seconds"), [*((flushing, FAST) for flushing in (*THREADS, *TASKS)), (by_event, SLOW), (by_task, SLOW)]
)
def test_a_flusher_that_tears_the_note_is_found(lab: Lab, flushing: Any, seconds: float) -> None:
    """It does so only if it writes before the workload ends: that of a slow one, by itself."""
    crash = lab()
    workload = workload_with(flushing, seconds, save_in_place, crash)
    with pytest.raises(CrashBug):
        crash.explore(workload, note_is_whole, setup=lambda home: save(home, "old"), model="kill")


@pytest.mark.parametrize(
    ("flushing", "seconds"),
    [
        *((flushing, SLOW) for flushing in (*THREADS, *TASKS) if flushing is not by_call_later),
        *((by_event, FAST), (by_task, FAST)),
    ],
)
def test_a_note_that_is_acknowledged_before_it_is_flushed_is_found(lab: Lab, flushing: Any, seconds: float) -> None:
    """It is only if the flusher writes after the acknowledgement: that of a fast one, by itself."""
    crash = lab()
    workload = workload_with(flushing, seconds, save, crash)
    with pytest.raises(CrashBug):
        crash.explore(workload, acknowledged_note_is_kept, setup=lambda home: save(home, "old"), model="kill")


def test_timers_of_a_loop_keep_their_order(lab: Lab) -> None:
    """A loop calls them in the order in which they are due, so this flusher always comes first."""
    crash = lab()
    workload = workload_with(by_call_later, 3 * PERIOD, save, crash)
    result = crash.explore(workload, acknowledged_note_is_kept, setup=lambda home: save(home, "old"), model="kill")
    assert result.verdict == "CLEAN"
    assert result.orders == ["", "late", "early"]


def test_a_timer_that_is_due_lags_behind_a_task_that_has_something_to_do(lab: Lab) -> None:
    crash = lab()

    async def workload(home: Path) -> None:
        asyncio.get_running_loop().call_later(0, save, home, "new")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        crash.ack()

    with pytest.raises(CrashBug, match="the other threads and tasks were held back"):
        crash.explore(workload, acknowledged_note_is_kept, setup=lambda home: save(home, "old"), model="kill")


def work_for(seconds: float) -> None:
    """Use the processor for some time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize("flushing", [by_task, by_wait_for, by_timeout, by_wait, by_call_later])
def test_a_workload_that_waits_for_a_thread_does_so_before_it_is_flushed(lab: Lab, flushing: Any) -> None:
    crash = lab()

    async def workload(home: Path) -> None:
        buffer = Buffer(home, save)
        async with flushing(buffer.flush):
            buffer.take("new")
            await asyncio.to_thread(work_for, SLOW)
            crash.ack()
        buffer.close()

    with pytest.raises(CrashBug):
        crash.explore(workload, acknowledged_note_is_kept, setup=lambda home: save(home, "old"), model="kill")


def test_a_thread_that_waits_for_a_task_that_is_held_back(lab: Lab) -> None:
    async def workload(home: Path) -> None:
        loop = asyncio.get_running_loop()
        flushed = asyncio.Event()

        async def flush() -> None:
            await asyncio.sleep(0)
            save(home, "new")
            flushed.set()

        task = asyncio.create_task(flush())
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(flushed.wait(), loop).result())
        await task

    result = lab().explore(workload, lambda _: None, model="kill")
    assert result.verdict == "CLEAN"
    assert result.orders == ["", "late", "early"]


def test_a_workload_that_paces_itself_by_waiting(lab: Lab) -> None:
    crash = lab()

    def workload(home: Path) -> None:
        buffer = Buffer(home, save)
        with by_event(buffer.flush):
            buffer.take("new")
            threading.Event().wait(3 * PERIOD)
            crash.ack()
        buffer.close()

    with pytest.raises(CrashBug):
        crash.explore(workload, acknowledged_note_is_kept, setup=lambda home: save(home, "old"), model="kill")


def test_a_flusher_on_a_running_loop(lab: Lab) -> None:
    crash = lab()

    async def workload(home: Path) -> None:
        buffer = Buffer(home, save_in_place)
        async with by_task(buffer.flush):
            buffer.take("new")
            await asyncio.sleep(0)
            crash.ack()
        buffer.close()

    with pytest.raises(CrashBug):
        asyncio.run(crash.aexplore(workload, note_is_whole, setup=lambda home: save(home, "old"), model="kill"))


def test_a_flusher_that_is_seldom_due(lab: Lab) -> None:
    """It is waited for, but the time that this takes is bounded."""
    crash = lab()

    def workload(home: Path) -> None:
        buffer = Buffer(home, save_in_place)
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.6):
                buffer.flush()

        with in_thread(run, stop.set):
            buffer.take("new")
            for _ in range(50):
                crash.ack()
        buffer.close()

    with pytest.raises(CrashBug):
        crash.explore(workload, note_is_whole, setup=lambda home: save(home, "old"), model="kill")


class TestTimeouts:
    """Holding threads and tasks back is not what makes the workload time out."""

    def test_of_a_thread(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            saved = threading.Event()

            def run() -> None:
                save(home, "new")
                saved.set()

            with in_thread(run, lambda: None):
                assert saved.wait(0.9)

        assert lab().explore(workload, lambda _: None, model="kill").orders == ["", "late", "early"]

    def test_of_a_task(self, lab: Lab) -> None:
        async def workload(home: Path) -> None:
            async def run() -> None:
                await asyncio.sleep(0)
                save(home, "new")

            task = asyncio.create_task(run())
            async with asyncio.timeout(0.9):
                await task
            await asyncio.wait_for(asyncio.create_task(run()), 0.9)

        assert lab().explore(workload, lambda _: None, model="kill").orders == ["", "late", "early"]
