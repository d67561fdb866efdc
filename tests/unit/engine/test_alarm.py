"""The alarm interrupts a store's call, and leaves another alarm alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pytest_wfstate.engine.alarm import Alarm, TimeIsUp
from pytest_wfstate.faults.failures import is_interruption


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm(0.02)
    yield alarm
    alarm.close()


@pytest.fixture
def theirs() -> Iterator[list[int]]:
    """Signals that an alarm installed before received."""
    received: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: received.append(number))
    yield received
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def forever() -> None:
    while True:
        signal.pause()


def test_a_long_block_is_interrupted_each_time(alarm: Alarm) -> None:
    for _ in range(2):
        with pytest.raises(TimeIsUp), alarm:
            forever()


def test_a_nested_block_leaves_the_outer_one_its_alarm(alarm: Alarm) -> None:
    def work() -> None:
        with alarm:
            pass
        forever()

    with pytest.raises(TimeIsUp), alarm:
        work()


def test_a_signal_outside_a_block_goes_to_the_earlier_handler(alarm: Alarm, theirs: list[int]) -> None:
    with alarm:
        pass
    os.kill(os.getpid(), signal.SIGALRM)
    assert theirs == [signal.SIGALRM]


def test_a_signal_that_somebody_sends_goes_to_the_earlier_handler(theirs: list[int]) -> None:
    alarm = Alarm(60)
    with contextlib.closing(alarm), alarm:
        os.kill(os.getpid(), signal.SIGALRM)
        assert theirs == [signal.SIGALRM]


def test_an_earlier_timer_still_fires(alarm: Alarm, theirs: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with alarm:
        pass
    while not theirs:
        signal.pause()


def test_an_earlier_timer_that_is_due_first_fires_inside_the_block(theirs: list[int]) -> None:
    alarm = Alarm(60)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with contextlib.closing(alarm), alarm:
        while not theirs:
            signal.pause()
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 60


def test_a_block_that_is_due_after_an_earlier_timer_is_still_interrupted(alarm: Alarm, theirs: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(TimeIsUp), alarm:
        forever()
    assert theirs == [signal.SIGALRM]


def test_the_time_of_a_block_counts_for_an_earlier_timer(alarm: Alarm, theirs: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 60)
    with pytest.raises(TimeIsUp), alarm:
        forever()
    assert signal.getitimer(signal.ITIMER_REAL)[0] <= 60 - alarm.seconds
    assert not theirs


def test_what_interrupts_a_block_is_not_an_interruption_of_the_test(alarm: Alarm) -> None:
    with pytest.raises(TimeIsUp) as interrupted, alarm:
        forever()
    place = interrupted.value.place()
    assert place is not None
    assert place.tb_frame.f_code is sys._getframe().f_code
    assert not is_interruption(interrupted.value)


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


def test_close_restores_handler_and_timer(alarm: Alarm, theirs: list[int]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with alarm:
        assert signal.getsignal(signal.SIGALRM) != handler
    alarm.close()
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert not theirs


def test_an_unhandled_signal_still_ends_the_process() -> None:
    code = """
import os, signal
from pytest_wfstate.engine.alarm import Alarm
with Alarm(10):
    pass
os.kill(os.getpid(), signal.SIGALRM)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGALRM
