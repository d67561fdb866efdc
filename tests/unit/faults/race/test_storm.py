"""Workers in a storm: what they say, how they die and go on, and what is told of one that does not come back."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_wfstate.faults.race.storm import NAP, Program, Storm, TimedCall, WorkerLost


@contextlib.contextmanager
def doubling() -> Iterator[Callable[[int], int]]:
    yield lambda order: order * 2


@contextlib.contextmanager
def dying() -> Iterator[Callable[[int], Any]]:
    yield lambda _: os._exit(1)


@contextlib.contextmanager
def waiting() -> Iterator[Callable[[int], Any]]:
    yield lambda _: time.sleep(60)


@contextlib.contextmanager
def failing() -> Iterator[Callable[[int], Any]]:
    yield lambda order: order / 0


@pytest.fixture
def storm() -> Iterator[Callable[..., Storm]]:
    with contextlib.ExitStack() as stack:

        def make(program: Program = doubling, workers: int = 3, *, deaths: bool = False, **more: Any) -> Storm:
            made = Storm(program, workers, random.Random(1), deaths=deaths, **{"threads": False, "timeout": 10, **more})
            stack.callback(made.close)
            return made

        yield make


Make = Callable[..., Storm]


def by_worker(deeds: list[TimedCall], worker: int) -> list[TimedCall]:
    return [timed_call for timed_call in deeds if timed_call.worker == worker]


@pytest.mark.parametrize("threads", [False, True])
def test_each_worker_does_its_orders_one_after_the_other(storm: Make, threads: bool) -> None:
    deeds = storm(threads=threads).round([[1, 2], [3], [4, 5, 6]])
    assert [timed_call.outcome for timed_call in by_worker(deeds, 0)] == [2, 4]
    assert [timed_call.outcome for timed_call in by_worker(deeds, 2)] == [8, 10, 12]
    ends = [(timed_call.begin, timed_call.end) for timed_call in by_worker(deeds, 2)]
    assert ends == sorted(ends)
    assert all(begin <= end for begin, end in ends)


def test_rounds_follow_each_other(storm: Make) -> None:
    made = storm()
    first, second = made.round([[1], [2], [3]]), made.round([[4], [5], [6]])
    assert max(timed_call.end for timed_call in first) <= min(timed_call.begin for timed_call in second)


def test_who_is_killed_begins_a_new_life_with_what_was_left(storm: Make) -> None:
    made = storm(deaths=True)
    deeds = made.round([list(range(200))] * 3, first=[-1])
    assert made.killed > 3
    assert (
        sum(timed_call.order == -1 for timed_call in deeds) >= made.killed - 3
    )  # one may die before it has begun its first
    for worker in range(3):
        done = [timed_call for timed_call in by_worker(deeds, worker) if timed_call.order >= 0]
        assert [timed_call.order for timed_call in done] == list(range(200))
        assert {timed_call.outcome for timed_call in done if timed_call.died} <= {None}
        assert [timed_call.life for timed_call in done] == sorted(timed_call.life for timed_call in done)


def test_who_naps_lets_others_go_on(storm: Make) -> None:
    deeds = storm().round([[NAP, 1], list(range(100)), list(range(100))])
    (late,) = by_worker(deeds, 0)
    assert sum(timed_call.end < late.begin for timed_call in deeds) >= 20


def test_all_who_nap_wake_up(storm: Make) -> None:
    assert len(storm().round([[NAP, 1], [NAP, 2], [1, NAP, 3]])) == 4


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (dying, "the process of worker 1 has ended in 7"),
        (waiting, "nobody came back in 0.2 s: worker 1 in 7"),
        (failing, "worker 1 cannot go on:\nTraceback(.|\n)*ZeroDivisionError: division by zero"),
    ],
)
def test_who_does_not_come_back_is_told(storm: Make, program: Program, told: str) -> None:
    with pytest.raises(WorkerLost, match=told):
        storm(program, 1, timeout=0.2 if program is waiting else 10).round([[7]])
