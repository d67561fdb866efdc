"""Shared by the tests of clients in processes: all their schedules, and what these lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.race.processes import ClientProcesses
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
    runs = explored(home, *clients, **settings)
    return {str((sorted(run.results.items()), run.stuck, content)) for run, content in runs}


def results(home: Home, *clients: Client, **settings: Any) -> set[tuple[Any, ...]]:
    """Return what the clients return in all schedules."""
    runs = explored(home, *clients, **settings)
    return {tuple(run.results[client] for client in sorted(run.results)) for run, _ in runs}


def steps_of(home: Home, client: Client) -> list[str]:
    """Return the steps of a client that runs alone."""
    ((run, _),) = explored(home, client, preemptions=0)
    assert not run.stuck
    assert run.results[0] is None, run.results
    return [str(step.access) for step in run.steps]
