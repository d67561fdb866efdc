"""Locks on files: every one is a switch point, wherever its file is, and a client that waits for one is blocked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from tests.unit.faults.race.file_racing import (
    Client,
    deaths_of,
    every_death,
    explored,
    outcomes_of,
    results,
    steps_of,
)

Lock = Callable[[int, bool], Any]
"""Locks a descriptor; waits, or fails if another client holds the lock."""


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("0")
        yield home


def flock(fd: int, waits: bool) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def lockf(fd: int, waits: bool) -> None:
    fcntl.lockf(fd, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def os_lockf(fd: int, waits: bool) -> None:
    os.lockf(fd, os.F_LOCK if waits else os.F_TLOCK, 0)


def range_lock(kind: int = fcntl.F_WRLCK) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)


def fcntl_lock(fd: int, waits: bool) -> None:
    fcntl.fcntl(fd, fcntl.F_SETLKW if waits else fcntl.F_SETLK, range_lock())


def ofd_lock(fd: int, waits: bool) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK, range_lock())


LOCKS = [flock, lockf, os_lockf, fcntl_lock, ofd_lock]
PLACES = ["lock", "../lock"]


@contextlib.contextmanager
def locked(home: Path, place: str, lock: Lock, *, waits: bool = True) -> Iterator[int]:
    fd = os.open(home / place, os.O_RDWR | os.O_CREAT)
    try:
        lock(fd, waits)
        yield fd
    finally:
        os.close(fd)


def adding(place: str, lock: Lock) -> Client:
    def client(home: Path) -> None:
        with locked(home, place, lock):
            (home / "n").write_text(str(int((home / "n").read_text()) + 1))

    return client


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lock", LOCKS)
class TestLocks:
    def test_prevent_a_lost_update(self, home: Home, lock: Lock, place: str) -> None:
        runs = explored(home, *[adding(place, lock)] * 2, preemptions=1, prune=False)
        assert {(content["n"], run.stuck) for run, content in runs} == {(b"2", "")}
        assert any(step.blocked and step.access.kind == "lock" for run, _ in runs for step in run.steps)

    def test_are_switch_points(self, home: Home, lock: Lock, place: str) -> None:
        def client(home: Path) -> None:
            with locked(home, place, lock):
                pass

        assert steps_of(home, client)[-2:] == [f"lock {place}", f"close {place}"]

    def test_can_be_tried_in_vain(self, home: Home, lock: Lock, place: str) -> None:
        def trying(home: Path) -> bool:
            try:
                with locked(home, place, lock, waits=False):
                    (home / "n").exists()
            except OSError:
                return False
            return True

        assert results(home, trying, trying, preemptions=1) == {(True, True), (True, False), (False, True)}

    def test_two_of_them_can_deadlock(self, home: Home, lock: Lock, place: str) -> None:
        def locking(first: str, second: str) -> Client:
            def client(home: Path) -> None:
                with locked(home, first, lock), locked(home, second, lock):
                    pass

            return client

        beside = os.path.join(os.path.dirname(place), "a")
        stuck = {run.stuck for run, _ in explored(home, locking(place, beside), locking(beside, place), preemptions=1)}
        assert stuck == {"", f"deadlock: client 1 waits for the lock {beside}; client 2 waits for the lock {place}"}


class TestFreeing:
    @pytest.mark.parametrize("prune", [True, False])
    def test_a_lock_is_free_once_its_last_descriptor_is_closed(self, home: Home, prune: bool) -> None:
        def holding(home: Path) -> None:
            with locked(home, "lock", flock) as fd:
                twin = os.dup(fd)
            os.mkdir(home / "held")
            os.close(twin)
            os.mkdir(home / "freed")

        def trying(home: Path) -> tuple[bool, bool, bool]:
            before = (home / "held").exists()
            try:
                with locked(home, "lock", flock, waits=False):
                    return before, True, (home / "freed").exists()
            except OSError:
                return before, False, (home / "freed").exists()

        seen = {tried for _, tried in results(home, holding, trying, prune=prune)}
        assert seen >= {(True, False, False), (True, True, False), (True, True, True)}

    def test_closing_any_descriptor_frees_a_lock_of_the_process(self, home: Home) -> None:
        def client(home: Path) -> None:
            with locked(home, "n", lockf):
                (home / "n").read_text()
                os.mkdir(home / "d")

        steps = ["open n", "lock n", "open n", "read n", "close n", "mkdir d", "close n"]
        assert [step for step in steps_of(home, client) if step != "read n"] == [s for s in steps if s != "read n"]

    def test_a_range_that_is_freed_leaves_the_others(self, home: Home) -> None:
        def client(home: Path) -> None:
            with locked(home, "n", lockf) as fd:
                fcntl.lockf(fd, fcntl.LOCK_UN, 1)

        assert steps_of(home, client) == ["open n", "lock n", "unlock n", "close n"]

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("lock", LOCKS)
    def test_a_client_that_finishes_frees_what_it_did_not_close(self, home: Home, lock: Lock, place: str) -> None:
        def leaking(home: Path) -> None:
            lock(os.open(home / place, os.O_RDWR | os.O_CREAT), True)
            (home / "n").write_text(str(int((home / "n").read_text()) + 1))

        runs = explored(home, leaking, adding(place, lock), preemptions=1)
        assert {(content["n"], run.stuck, run.diverged) for run, content in runs} == {(b"2", "", False)}

    def test_a_lock_is_still_held_before_its_client_finishes(self, home: Home) -> None:
        def leaking(home: Path) -> None:
            flock(os.open(home / "lock", os.O_RDWR | os.O_CREAT), True)
            os.mkdir(home / "held")

        def trying(home: Path) -> tuple[bool, bool]:
            is_held = (home / "held").exists()
            try:
                with locked(home, "lock", flock, waits=False):
                    return is_held, True
            except OSError:
                return is_held, False

        seen = {tried for _, tried in results(home, leaking, trying)}
        assert seen == {(False, False), (False, True), (True, False), (True, True)}
        assert steps_of(home, leaking)[-1] == "close lock"

    def test_a_client_that_raises_frees_what_its_traceback_keeps_open(self, home: Home) -> None:
        def failing(home: Path) -> None:
            file = open(home / "lock", "w")
            fcntl.flock(file, fcntl.LOCK_EX)
            raise ValueError

        runs = explored(home, failing, adding("lock", flock), preemptions=1)
        assert {(content["n"], run.stuck, run.diverged) for run, content in runs} == {(b"1", "", False)}
        assert all(any(str(step.access) == "close lock" and not step.client for step in run.steps) for run, _ in runs)


class TestLooking:
    def test_looking_at_a_lock_sees_who_holds_it(self, home: Home) -> None:
        def looking(home: Path) -> bool:
            fd = os.open(home / "n", os.O_RDWR)
            try:
                (kind,) = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_GETLK, range_lock()))
                return bool(kind != fcntl.F_UNLCK)
            finally:
                os.close(fd)

        def holding(home: Path) -> None:
            with locked(home, "n", fcntl_lock):
                pass

        assert {seen for seen, _ in results(home, looking, holding)} == {True, False}

    def test_a_death_that_frees_a_lock_is_seen(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def holding(home: Path) -> None:
            os.mkdir(home / "begun")
            with locked(home, "../lock", flock, waits=False):
                os.mkdir(home / "a")

        def polling(home: Path) -> list[tuple[bool, bool]]:
            os.mkdir(home / "polls")
            seen = []
            for _ in range(2):
                try:
                    with locked(home, "../lock", flock, waits=False):
                        seen.append((True, (home / "a").exists()))
                except OSError:
                    seen.append((False, (home / "a").exists()))
                    time.sleep(1)
            return seen

        with deaths_of(monkeypatch, 0):
            pruned = explored(home, holding, polling, preemptions=1, killable=True)
        with every_death(monkeypatch, 0):
            whole = explored(home, holding, polling, preemptions=1, prune=False, killable=True)
        assert outcomes_of(pruned) == outcomes_of(whole)
        assert 3 * len(pruned) < 2 * len(whole)

    def test_a_death_is_seen_after_another_lock_was_freed(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def holding(home: Path) -> None:
            with locked(home, "job", flock):
                with locked(home, "queue", flock):
                    os.mkdir(home / "claimed")
                os.mkdir(home / "done")

        def watching(home: Path) -> list[bool]:
            seen = [(home / "claimed").exists()]
            for place in ("queue", "job"):
                try:
                    with locked(home, place, flock, waits=False):
                        seen.append(True)
                except OSError:
                    seen.append(False)
            return seen

        with deaths_of(monkeypatch, 0):
            pruned = explored(home, holding, watching, preemptions=1, killable=True)
        with every_death(monkeypatch, 0):
            whole = explored(home, holding, watching, preemptions=1, prune=False, killable=True)
        died = "(0, Killed())"
        begun = {outcome for outcome in outcomes_of(whole) if died not in outcome or "'claimed': None" in outcome}
        assert outcomes_of(pruned) >= begun
        assert any("[True, True, False]" in outcome and died in outcome for outcome in begun)
