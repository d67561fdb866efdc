"""Shared by the tests of clients in processes: all their schedules, and what these lead to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.race.processes import ClientProcesses, _ProcessSchedule
from pytest_wfstate.faults.race.schedule import ScheduleRun
from pytest_wfstate.faults.race.search import ScheduleSearch

Client = Callable[[Path], Any]


def explored(
    home: Home,
    *clients: Client,
    preemptions: int = 2,
    prune: bool = True,
    timeout: float = 20,
    killable: bool = False,
) -> list[tuple[ScheduleRun, dict[str, Any]]]:
    """Run all schedules; return each with the files it left."""
    start, links = home.content(), home.links()
    processes = ClientProcesses(home, clients, timeout, killable=killable)
    try:
        return [(run, home.content()) for run in ScheduleSearch(processes, preemptions, prune)]
    finally:
        processes.close()
        home.build(start, links)


def outcomes(home: Home, *clients: Client, **settings: Any) -> set[str]:
    """Return what all schedules lead to: results, files, and why one could not finish."""
    return outcomes_of(explored(home, *clients, **settings))


def outcomes_of(runs: list[tuple[ScheduleRun, dict[str, Any]]]) -> set[str]:
    """Return what these schedules lead to."""
    return {str((sorted(run.results.items()), run.stuck, content)) for run, content in runs}


def results(home: Home, *clients: Client, **settings: Any) -> set[tuple[Any, ...]]:
    """Return what the clients return in all schedules."""
    runs = explored(home, *clients, **settings)
    return {tuple(run.results[client] for client in sorted(run.results)) for run, _ in runs}


_CANDIDATES = "pytest_wfstate.faults.race.processes._ProcessSchedule._candidates"


@contextlib.contextmanager
def every_death(monkeypatch: pytest.MonkeyPatch, *victims: int) -> Iterator[None]:
    """Kill each client, or each of these, at each of its steps, also where that is equivalent to another death."""

    def candidates(schedule: Any, *_: Any) -> tuple[int, ...]:
        has_death = any(choice < 0 for choice in schedule._run.choices)
        alive = schedule._made.keys() & schedule._left
        return () if has_death else tuple(sorted(alive.intersection(victims) if victims else alive))

    with monkeypatch.context() as patched:
        patched.setattr(_CANDIDATES, candidates)
        yield


@contextlib.contextmanager
def deaths_of(monkeypatch: pytest.MonkeyPatch, victim: int) -> Iterator[None]:
    """Kill only this client, where its death matters: there are far fewer schedules, each of which costs a fork."""
    real = _ProcessSchedule._candidates

    def candidates(*args: Any) -> tuple[int, ...]:
        return tuple(client for client in real(*args) if client == victim)

    with monkeypatch.context() as patched:
        patched.setattr(_CANDIDATES, candidates)
        yield


def steps_of(home: Home, client: Client) -> list[str]:
    """Return the steps of a client that runs alone."""
    ((run, _),) = explored(home, client, preemptions=0)
    assert not run.stuck
    assert run.results[0] is None, run.results
    return [str(step.access) for step in run.steps]
