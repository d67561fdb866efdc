"""Workers in a storm: what they report, how they are killed and restarted, and what happens when one is lost."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_wfstate.faults.race.storm import PAUSE, Program, Storm, TimedCall, WorkerLost


@contextlib.contextmanager
def doubling() -> Iterator[Callable[[int], int]]:
    yield lambda call: call * 2


@contextlib.contextmanager
def dying() -> Iterator[Callable[[int], Any]]:
    yield lambda _: os._exit(1)


@contextlib.contextmanager
def waiting() -> Iterator[Callable[[int], Any]]:
    yield lambda _: time.sleep(60)


@contextlib.contextmanager
def failing() -> Iterator[Callable[[int], Any]]:
    yield lambda call: call / 0


@pytest.fixture
def storm() -> Iterator[Callable[..., Storm]]:
    with contextlib.ExitStack() as stack:

        def make(program: Program = doubling, workers: int = 3, **settings: Any) -> Storm:
            settings = {"deaths": False, "threads": False, "timeout": 10, **settings}
            return stack.enter_context(contextlib.closing(Storm(program, workers, random.Random(1), **settings)))

        yield make


Make = Callable[..., Storm]


def by_worker(calls: list[TimedCall], worker: int) -> list[TimedCall]:
    return [timed for timed in calls if timed.worker == worker]


@pytest.mark.parametrize("threads", [False, True])
def test_each_worker_makes_its_calls_one_after_the_other(storm: Make, threads: bool) -> None:
    calls = storm(threads=threads).round([[1, 2], [3], [4, 5, 6]])
    assert [timed.outcome for timed in by_worker(calls, 0)] == [2, 4]
    assert [timed.outcome for timed in by_worker(calls, 2)] == [8, 10, 12]
    ends = [(timed.begin, timed.end) for timed in by_worker(calls, 2)]
    assert ends == sorted(ends)
    assert all(begin <= end for begin, end in ends)


def test_rounds_do_not_overlap(storm: Make) -> None:
    storms = storm()
    first, second = storms.round([[1], [2], [3]]), storms.round([[4], [5], [6]])
    assert max(timed.end for timed in first) <= min(timed.begin for timed in second)


def test_a_killed_worker_restarts_with_the_calls_it_has_left(storm: Make) -> None:
    storms = storm(deaths=True)
    calls = storms.round([list(range(200))] * 3, first=[-1])
    assert storms.killed > 3
    assert sum(timed.call == -1 for timed in calls) >= storms.killed - 3  # one may die before it begins its first
    for worker in range(3):
        done = [timed for timed in by_worker(calls, worker) if timed.call >= 0]
        assert [timed.call for timed in done] == list(range(200))
        assert {timed.outcome for timed in done if timed.died} <= {None}
        assert [timed.restarts for timed in done] == sorted(timed.restarts for timed in done)


def test_a_paused_worker_lets_others_run(storm: Make) -> None:
    calls = storm().round([[PAUSE, 1], list(range(100)), list(range(100))])
    (late,) = by_worker(calls, 0)
    assert sum(timed.end < late.begin for timed in calls) >= 20


def test_paused_workers_resume_when_no_other_runs(storm: Make) -> None:
    assert len(storm().round([[PAUSE, 1], [PAUSE, 2], [1, PAUSE, 3]])) == 4


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (dying, "the process of worker 1 exited during 7"),
        (waiting, "no worker answered in 0.2 s: worker 1 in 7"),
        (failing, "worker 1 cannot continue:\nZeroDivisionError: division by zero   .*test_storm.py:\\d+"),
    ],
)
def test_a_lost_worker_is_reported(storm: Make, program: Program, message: str) -> None:
    with pytest.raises(WorkerLost, match=message):
        storm(program, 1, timeout=0.2 if program is waiting else 10).round([[7]])
