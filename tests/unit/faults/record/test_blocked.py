"""A thread is blocked if it waits for something, but not if it waits for the interpreter or for a processor."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pytest_wfstate.faults.record.blocked import BlockedThreads, is_running

LOOKS = 300
BYTES = bytes(10**6)


@pytest.fixture
def blocked() -> Iterator[BlockedThreads]:
    blocked = BlockedThreads()
    blocked.on()
    yield blocked
    blocked.off()


class Helper:
    """A thread that works until it may wait, and then waits until it may end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.started = threading.Event()
        self.may_end = threading.Event()
        self._work = work
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.started.wait()

    def _run(self) -> None:
        self.started.set()
        while not self.may_end.is_set():
            self._work()

    def end(self) -> None:
        self.may_end.set()
        self.thread.join()


@pytest.mark.parametrize("work", [lambda: sum(range(1000)), lambda: hashlib.sha256(BYTES)], ids=["with", "without"])
def test_a_thread_that_computes_is_not_blocked(blocked: BlockedThreads, work: Callable[[], object]) -> None:
    """With the interpreter's lock, which this thread takes from it again and again, or without."""
    helper = Helper(work)
    try:
        assert not any(blocked.has(helper.thread.native_id or 0) for _ in range(LOOKS))
    finally:
        helper.end()


def test_a_thread_that_waits_for_a_lock_is_blocked(blocked: BlockedThreads) -> None:
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    try:
        while not blocked.has(thread.native_id or 0):
            pass
        assert not is_running(thread.native_id or 0)
    finally:
        lock.release()
        thread.join()


def test_a_thread_that_waits_for_a_socket_is_blocked(blocked: BlockedThreads) -> None:
    here, there = socket.socketpair()
    with here, there:
        thread = threading.Thread(target=there.recv, args=(1,))
        thread.start()
        while not blocked.has(thread.native_id or 0):
            pass
        here.send(b"1")
        thread.join()


def test_a_thread_that_has_ended_is_blocked(blocked: BlockedThreads) -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    while not blocked.has(thread.native_id or 0):
        pass
    assert not is_running(thread.native_id or 0)
