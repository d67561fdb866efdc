"""The schedules that the search prunes are equivalent to those it runs: compared with all, for random clients."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import frontier
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import Access, ScheduleRun, ScheduleStep
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.replay_id import Choices
from tests.unit.faults.race.file_racing import every_death

NAMES = st.sampled_from(["a", "b", "d/a", "link", "way/a", "d/twin"])
"""A link leads to `a`, a way to the folder `d`, and `d/twin` is the same file as `a`."""


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


def size(home: Path, name: str) -> int:
    with open(home / name, "rb") as file:
        return file.seek(0, os.SEEK_END)


def links(home: Path, name: str) -> int:
    return os.lstat(home / name).st_nlink


def copy(home: Path, name: str, to: str) -> None:
    shutil.copyfile(home / name, home / to)


def point(home: Path, name: str) -> None:
    """Make a link point elsewhere."""
    os.symlink(name, home / "new")
    os.replace(home / "new", home / "link")


def names(home: Path) -> list[str]:
    return sorted(os.listdir(home))


def names_of_descriptor(home: Path) -> list[str]:
    fd = os.open(home / "d", os.O_RDONLY)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def sizes(home: Path) -> list[tuple[str, int]]:
    with os.scandir(home / "way") as entries:
        return sorted((entry.name, entry.stat().st_size) for entry in entries)


def age(home: Path) -> None:
    os.utime(home / "d", ns=(1, 1))


def is_old(home: Path) -> bool:
    return os.stat(home / "d").st_mtime_ns == 1


def make_folder(home: Path) -> None:
    (home / "d").mkdir()


def remove_folder(home: Path) -> None:
    (home / "d").rmdir()


OPERATIONS = st.one_of(
    st.tuples(st.sampled_from([read, unlink, exists, size, links, point]), st.tuples(NAMES)),
    st.tuples(st.just(write), st.tuples(NAMES, st.sampled_from("xy"))),
    st.tuples(st.sampled_from([rename, copy]), st.tuples(NAMES, NAMES)),
    st.tuples(
        st.sampled_from([names, names_of_descriptor, sizes, age, is_old, make_folder, remove_folder]), st.just(())
    ),
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
    except (OSError, shutil.Error) as error:
        return type(error).__name__


def client(name: str, sections: list[Any]) -> Callable[[Path], list[Any]]:
    def run(home: Path) -> list[Any]:
        (home / name).mkdir()  # a client that dies before it has changed anything might as well not have begun
        return [seen for part in sections for seen in section(home, *part)]

    return run


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "a").write_text("0")
        (home.path / "d").mkdir()
        (home.path / "d/twin").hardlink_to(home.path / "a")
        (home.path / "way").symlink_to("d")
        (home.path / "link").symlink_to("a")
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


@pytest.mark.parametrize(("killable", "examples", "sections"), [(False, 3, 2), (True, 2, 1)])
def test_pruning_loses_no_outcome(
    home: Home, killable: bool, examples: int, sections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer: list[float] = []

    @seed(4)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(SECTIONS, min_size=1, max_size=sections), min_size=2, max_size=2))
    def compare(programs: list[Any]) -> None:
        clients = [client(name, sections) for name, sections in zip(("first", "second"), programs, strict=True)]
        pruned, few = outcomes(home, clients, prune=True, killable=killable)
        with every_death(monkeypatch):
            whole, many = outcomes(home, clients, prune=False, killable=killable)
        assert pruned == whole
        fewer.append(few / many)

    compare()
    assert min(fewer) <= 0.5


class Simulated:
    """Clients that take some steps each, all of them on the same file."""

    shared: Any = None

    def __init__(self, clients: int, steps: int) -> None:
        self._clients = clients
        self._steps = steps

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:  # noqa: ARG002
        run, left = ScheduleRun(), dict.fromkeys(range(self._clients), self._steps)
        while left:
            last = run.choices[-1] if run.choices else 0
            position = len(run.choices)
            client = choices[position] if position < len(choices) else last if last in left else min(left)
            access = Access("write", "n", writes=frozenset({("inode", 1, "")}), names=((1, "n"),))
            run.steps.append(ScheduleStep(client, access))
            run.choices.append(client)
            run.enabled.append(tuple(left))
            left[client] -= 1
            if not left[client]:
                del left[client]
                run.results[client] = None
        return run

    def close(self) -> None:
        pass


def test_memory_does_not_grow_with_the_number_of_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "SEEN", 500)
    search = ScheduleSearch(Simulated(2, 15), 3)
    runs = iter(search)
    for _ in itertools.islice(runs, 200):
        pass
    tracemalloc.start()
    for _ in itertools.islice(runs, 300):
        pass
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert search.runs == 500
    assert kept / 300 < 1000


def test_what_is_forgotten_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {tuple(run.choices) for run in ScheduleSearch(Simulated(3, 3), 2, prune=False)}
    monkeypatch.setattr(frontier, "SEEN", 20)
    search = ScheduleSearch(Simulated(3, 3), 2)
    assert {tuple(run.choices) for run in search} == whole
    assert len(search._seen) <= 40
