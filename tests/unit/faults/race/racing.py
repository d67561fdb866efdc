"""Shared by the tests of clients in memory: counters, and all schedules of some clients."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.race.explorer import By
from pytest_wfstate.faults.race.schedule import Clients, ScheduleRun
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.race.tasks import Tasks
from pytest_wfstate.faults.race.threads import Threads

Client = Callable[[Any], Any]

CLOCKS: list[Callable[[], float]] = [
    lambda: time.time(),
    lambda: time.monotonic(),
    lambda: time.perf_counter(),
    lambda: time.monotonic_ns() / 1e9,
    lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
    lambda: datetime.datetime.now().timestamp(),
]
"""What shows the time. A list of the functions themselves would make each exploration search the heap for them."""


def explored(
    setup: Callable[[], Any],
    *clients: Client,
    by: By = "line",
    preemptions: int = 1,
    timeout: float = 20,
    seen: Callable[[Any], Any] = lambda shared: shared,
) -> list[tuple[ScheduleRun, Any]]:
    """Run all schedules; return each with what `seen` returns of the shared object."""
    raced: Clients = Tasks(setup, clients, timeout) if by == "await" else Threads(setup, clients, timeout, by=by)
    with contextlib.closing(raced):
        return [(run, seen(raced.shared)) for run in ScheduleSearch(raced, preemptions)]


def results(runs: list[tuple[ScheduleRun, Any]]) -> set[tuple[Any, ...]]:
    assert not any(run.stuck or run.diverged or run.unseen for run, _ in runs)
    return {tuple(run.results[client] for client in sorted(run.results)) for run, _ in runs}


class Counter:
    """Counts without a lock."""

    def __init__(self) -> None:
        self.n = 0
        self.m = 0

    def add(self) -> None:
        self.n += 1

    def add_in_two_lines(self) -> None:
        n = self.n
        self.n = n + 1


class LockedCounter(Counter):
    """Counts under a lock."""

    def __init__(self, lock: Callable[[], Any] = threading.Lock) -> None:
        super().__init__()
        self.lock = lock()

    def add(self) -> None:
        with self.lock:
            self.add_in_two_lines()


def counted(setup: Callable[[], Any], client: Client, by: By, preemptions: int) -> set[int]:
    runs = explored(setup, client, client, by=by, preemptions=preemptions, seen=lambda counter: counter.n)
    assert not any(run.diverged or run.stuck for run, _ in runs)
    return {n for _, n in runs}
