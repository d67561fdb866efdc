"""The alarm that interrupts a store's call, and somebody else's alarm beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pytest_wfstate.engine.alarm import Alarm, TimeIsUp


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm(0.02)
    yield alarm
    alarm.close()


@pytest.fixture
def theirs() -> Iterator[list[int]]:
    """What the alarm of somebody else has heard, who was there before."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    yield heard
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def forever() -> None:
    while True:
        signal.pause()


def test_what_takes_too_long_is_interrupted_each_time(alarm: Alarm) -> None:
    for _ in range(2):
        with pytest.raises(TimeIsUp), alarm:
            forever()


def test_a_block_in_a_block_leaves_the_outer_one_its_alarm(alarm: Alarm) -> None:
    def work() -> None:
        with alarm:
            pass
        forever()

    with pytest.raises(TimeIsUp), alarm:
        work()


def test_what_rings_outside_is_for_who_was_there_before(alarm: Alarm, theirs: list[int]) -> None:
    with alarm:
        pass
    os.kill(os.getpid(), signal.SIGALRM)
    assert theirs == [signal.SIGALRM]


def test_an_alarm_that_was_set_before_still_rings(alarm: Alarm, theirs: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with alarm:
        pass
    while not theirs:
        signal.pause()


def test_another_thread_is_not_interrupted(alarm: Alarm) -> None:
    def work() -> None:
        with alarm:
            done.set()

    done, handler = threading.Event(), signal.getsignal(signal.SIGALRM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done.is_set()
    assert signal.getsignal(signal.SIGALRM) is handler


def test_nothing_is_left_in_place(alarm: Alarm, theirs: list[int]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with alarm:
        assert signal.getsignal(signal.SIGALRM) != handler
    alarm.close()
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert not theirs


def test_what_would_have_ended_the_process_still_does() -> None:
    code = """
import os, signal
from pytest_wfstate.engine.alarm import Alarm
with Alarm(10):
    pass
os.kill(os.getpid(), signal.SIGALRM)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGALRM
