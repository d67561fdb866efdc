"""The schedules that the search prunes are equivalent to those it runs: compared with all, for random clients."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.search import ScheduleSearch

NAMES = st.sampled_from(["a", "b", "d/a"])


def read(home: Path, name: str) -> str:
    return (home / name).read_text()


def write(home: Path, name: str, text: str) -> None:
    (home / name).write_text(text)


def rename(home: Path, name: str, to: str) -> None:
    os.rename(home / name, home / to)


def unlink(home: Path, name: str) -> None:
    (home / name).unlink()


def exists(home: Path, name: str) -> bool:
    return (home / name).exists()


def names(home: Path) -> list[str]:
    return sorted(os.listdir(home))


def make_folder(home: Path) -> None:
    (home / "d").mkdir()


OPERATIONS = st.one_of(
    st.tuples(st.sampled_from([read, unlink, exists]), st.tuples(NAMES)),
    st.tuples(st.just(write), st.tuples(NAMES, st.sampled_from("xy"))),
    st.tuples(st.just(rename), st.tuples(NAMES, NAMES)),
    st.tuples(st.sampled_from([names, make_folder]), st.just(())),
)
LOCKS = st.sampled_from([None, None, fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_EX | fcntl.LOCK_NB])
SECTIONS = st.tuples(LOCKS, st.lists(OPERATIONS, min_size=1, max_size=2), st.booleans())
"""A lock or none, what is done under it, and whether the lock file is removed afterwards."""


def section(home: Path, lock: int | None, operations: list[Any], removes: bool) -> Iterator[Any]:
    if lock is None:
        yield from (outcome(do, home, *arguments) for do, arguments in operations)
        return
    with open(home / "lock", "a") as held:
        yield outcome(fcntl.flock, held, lock)
        yield from (outcome(do, home, *arguments) for do, arguments in operations)
        if removes:
            yield outcome(unlink, home, "lock")


def outcome(do: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return do(*arguments)
    except OSError as error:
        return type(error).__name__


def client(sections: list[Any]) -> Callable[[Path], list[Any]]:
    def run(home: Path) -> list[Any]:
        return [seen for part in sections for seen in section(home, *part)]

    return run


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "a").write_text("0")
        yield home


def outcomes(home: Home, clients: list[Any], *, prune: bool, killable: bool) -> tuple[set[str], int]:
    processes = ClientProcesses(home, clients, killable=killable)
    start = home.content(), home.links()
    try:
        search = ScheduleSearch(processes, 2 - killable, prune)
        seen = {str((sorted(run.results.items()), run.stuck, home.content())) for run in search}
    finally:
        processes.close()
        home.build(*start)
    return seen, search.runs


@pytest.mark.parametrize(("killable", "examples"), [(False, 8), (True, 2)])
def test_pruning_loses_no_outcome(home: Home, killable: bool, examples: int) -> None:
    fewer: list[float] = []

    @seed(4)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(SECTIONS, min_size=1, max_size=2), min_size=2, max_size=2))
    def compare(programs: list[Any]) -> None:
        clients = [client(sections) for sections in programs]
        pruned, few = outcomes(home, clients, prune=True, killable=killable)
        whole, many = outcomes(home, clients, prune=False, killable=killable)
        assert pruned == whole
        fewer.append(few / many)

    compare()
    assert min(fewer) <= 0.5
