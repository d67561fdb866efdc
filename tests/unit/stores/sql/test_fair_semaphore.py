"""Room: so many at once, in the order in which they came."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_wfstate.stores.sql.fair_semaphore import FairSemaphore


def waiting(room: FairSemaphore, count: int) -> None:
    """Come back when so many wait."""
    while len(room._waiting) != count:
        pass


def test_no_more_have_a_place_than_there_are() -> None:
    room, lock = FairSemaphore(3), threading.Lock()
    inside: list[int] = [0]
    most: list[int] = [0]

    def enter(_: int) -> None:
        for _ in range(200):
            room.take()
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            with lock:
                inside[0] -= 1
            room.give()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(enter, range(8)))
    assert most[0] <= 3
    assert (len(room._free), len(room._waiting)) == (3, 0)


def test_who_waits_is_served_in_turn_and_before_who_has_just_left() -> None:
    room = FairSemaphore(1)
    served: list[str] = []

    def enter(name: str) -> None:
        room.take()
        served.append(name)
        room.give()

    room.take()
    with ThreadPoolExecutor(3) as threads:
        for count, name in enumerate(["first", "second", "third"], start=1):
            threads.submit(enter, name)
            waiting(room, count)
        room.give()
        enter("who left")
    assert served == ["first", "second", "third", "who left"]


class _Stopped(Exception):
    """What Ctrl-C is here."""


@pytest.fixture
def stop() -> Iterator[Callable[[], None]]:
    """Interrupt the main thread, wherever it waits."""

    def raises(*_: object) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGUSR1, raises)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_who_is_interrupted_while_it_waits_leaves_its_turn_to_others(stop: Callable[[], None]) -> None:
    room = FairSemaphore(1)
    room.take()
    with ThreadPoolExecutor(1) as threads:

        def interrupt() -> None:
            waiting(room, 1)
            stop()

        interrupting = threads.submit(interrupt)
        with pytest.raises(_Stopped):
            room.take()
        interrupting.result()
    room.give()
    room.take()
    assert (len(room._free), len(room._waiting)) == (0, 0)


def test_who_is_interrupted_when_it_was_served_gives_its_place_back() -> None:
    room = FairSemaphore(1)
    room.take()
    room._leave(threading.Lock())
    assert len(room._free) == 1
