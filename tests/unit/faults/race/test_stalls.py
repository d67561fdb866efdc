"""A client can be stalled for as long as another one polls, until that gives up; one that never does is not a bug."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import processes
from tests.unit.faults.race.file_racing import Client, deaths_of, every_death, explored, outcomes_of

Lock = Callable[[Path], contextlib.AbstractContextManager[bool]]
"""Tries to take a lock once; yields whether it holds it."""
Tries = Callable[[], Iterator[Any]]
"""Yields before each try, and sleeps after it."""


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("0")
        yield home


@contextlib.contextmanager
def lock_file(home: Path) -> Iterator[bool]:
    try:
        os.close(os.open(home / "lock", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        yield False
        return
    yield True
    (home / "lock").unlink(missing_ok=True)


@contextlib.contextmanager
def flock(home: Path) -> Iterator[bool]:
    with open(home / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def some(number: int = 5) -> Iterator[int]:
    for attempt in range(number):
        yield attempt
        time.sleep(0.05)


def few() -> Iterator[int]:
    return some(2)


def many() -> Iterator[int]:
    return some(100)


def until_monotonic() -> Iterator[float]:
    deadline = time.monotonic() + 30
    while (now := time.monotonic()) < deadline:
        yield now
        time.sleep(0.05)


def forever() -> Iterator[int]:
    for attempt in itertools.count():
        yield attempt
        time.sleep(0.05)


LIMITED = [some, many, until_monotonic]


class GaveUp(Exception):
    """A client did not get its lock."""


def add(home: Path) -> None:
    (home / "n").write_text(str(int((home / "n").read_text()) + 1))


def mark(home: Path) -> None:
    """Make a folder named after how many there are, which fails if another client does so meanwhile."""
    os.mkdir(home / str(len(os.listdir(home))))


def adding(lock: Lock, tries: Tries, *, ignores: bool, add: Callable[[Path], None] = add) -> Client:
    """Return a client that adds 1 under a lock; or, if it does not get it, without it, or not at all."""

    def client(home: Path) -> bool:
        for _ in tries():
            with lock(home) as is_locked:
                if is_locked:
                    add(home)
                    return True
        if ignores:
            add(home)
        return ignores

    return client


def lost(runs: list[Any]) -> bool:
    """Whether in some schedule not everything was added."""
    return any(int(content["n"] or 0) < sum(map(bool, run.results.values())) for run, content in runs)


@pytest.mark.parametrize("lock", [lock_file, flock])
class TestStalls:
    @pytest.mark.parametrize("tries", LIMITED)
    def test_a_lock_that_is_ignored_in_the_end_is_found(self, home: Home, lock: Lock, tries: Tries) -> None:
        runs = explored(home, *[adding(lock, tries, ignores=True)] * 2, preemptions=1)
        assert lost(runs)
        assert not any(run.stuck or run.diverged for run, _ in runs)

    @pytest.mark.parametrize("tries", LIMITED)
    def test_a_client_can_give_up(self, home: Home, lock: Lock, tries: Tries) -> None:
        runs = explored(home, *[adding(lock, tries, ignores=False)] * 2, preemptions=1)
        assert {tuple(sorted(run.results.values())) for run, _ in runs} == {(True, True), (False, True)}
        assert not lost(runs)
        assert not any(run.stuck or run.diverged for run, _ in runs)

    def test_one_that_waits_forever_gets_its_lock(self, home: Home, lock: Lock) -> None:
        runs = explored(home, *[adding(lock, forever, ignores=True)] * 2)
        assert {tuple(run.results.values()) for run, _ in runs} == {(True, True)}
        assert not lost(runs)
        assert not any(run.stuck or run.diverged for run, _ in runs)
        assert any(run.endless for run, _ in runs)
        assert len(runs) < 150

    @pytest.mark.parametrize(("tries", "killable"), [(some, False), (forever, False), (few, True)])
    def test_pruning_loses_no_outcome(
        self, home: Home, lock: Lock, tries: Tries, killable: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "MAX_STALL", 6)
        clients = [adding(lock, tries, ignores=True, add=mark), adding(lock, few, ignores=True, add=mark)]
        with deaths_of(monkeypatch, 0):
            pruned = explored(home, *clients, preemptions=1, killable=killable)
        with every_death(monkeypatch, 0):  # if they can die, the clients are the same
            whole = explored(home, *clients, preemptions=1, prune=False, killable=killable)
        assert outcomes_of(pruned) == outcomes_of(whole)
        assert len(pruned) < len(whole)


def test_clients_that_all_poll_in_vain_have_few_schedules(home: Home) -> None:
    def client(home: Path) -> bool:
        return any((home / "door").exists() for _ in some(25))

    runs = explored(home, client, client, preemptions=1)
    assert {tuple(run.results.values()) for run, _ in runs} == {(False, False)}
    assert len(runs) < 60
