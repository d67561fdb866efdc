"""The semaphore bounds how many threads are inside, and serves waiters in order of arrival."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_wfstate.stores.sql.fair_semaphore import FairSemaphore


def await_waiters(semaphore: FairSemaphore, count: int) -> None:
    while len(semaphore._waiting) != count:
        pass


def test_no_more_threads_are_inside_than_there_are_slots() -> None:
    semaphore, lock = FairSemaphore(3), threading.Lock()
    inside, most = 0, 0

    def enter(_: int) -> None:
        nonlocal inside, most
        for _ in range(200):
            semaphore.acquire()
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
            semaphore.release()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(enter, range(8)))
    assert most <= 3
    assert (len(semaphore._free), len(semaphore._waiting)) == (3, 0)


def test_waiters_are_served_in_order_and_before_the_thread_that_just_released() -> None:
    semaphore = FairSemaphore(1)
    served: list[str] = []

    def enter(name: str) -> None:
        semaphore.acquire()
        served.append(name)
        semaphore.release()

    semaphore.acquire()
    with ThreadPoolExecutor(3) as threads:
        for count, name in enumerate(["first", "second", "third"], start=1):
            threads.submit(enter, name)
            await_waiters(semaphore, count)
        semaphore.release()
        enter("releaser")
    assert served == ["first", "second", "third", "releaser"]


class _Interrupted(Exception):
    """Stands in for Ctrl-C."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupt the main thread, wherever it waits."""

    def raises(*_: object) -> None:
        raise _Interrupted

    before = signal.signal(signal.SIGUSR1, raises)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_waiter_leaves_the_queue(interrupt: Callable[[], None]) -> None:
    semaphore = FairSemaphore(1)
    semaphore.acquire()
    with ThreadPoolExecutor(1) as threads:

        def interrupt_waiter() -> None:
            await_waiters(semaphore, 1)
            interrupt()

        interrupting = threads.submit(interrupt_waiter)
        with pytest.raises(_Interrupted):
            semaphore.acquire()
        interrupting.result()
    semaphore.release()
    semaphore.acquire()
    assert (len(semaphore._free), len(semaphore._waiting)) == (0, 0)


def test_a_waiter_interrupted_after_it_was_served_releases_its_slot() -> None:
    semaphore = FairSemaphore(1)
    semaphore.acquire()
    semaphore._leave(threading.Lock())
    assert len(semaphore._free) == 1
