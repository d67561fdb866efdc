"""Fixtures of the tests of faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_wfstate import Crash, Disk
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.labs.lab import Settings
from tests.unit.faults.disk.notes import read


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a file of five bytes and an empty folder in it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "old").write_bytes(b"12345")
    (home / "folder").mkdir()
    return home


class Lab(Protocol):
    """Makes a crash lab with some settings."""

    def __call__(self, **settings: Any) -> Crash: ...


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Crash labs with settings other than those of the command line, and the bounds of the quick profile."""
    labs: list[Crash] = []

    def make(**settings: Any) -> Crash:
        labs.append(Crash(Settings(**{"bounds": PROFILES["quick"], **settings})))
        return labs[-1]

    yield make
    for crash in labs:
        crash.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for another process, for at most 10 s."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for 10 s")


def accept(_: Disk) -> None:
    """Pass, whatever is on the disk."""


class Tried(list[tuple[dict[str, bytes | None], list[Any]]]):
    """A check that collects every disk and what was acknowledged, and passes."""

    def __call__(self, disk: Disk) -> None:
        files = {path.name: path.read_bytes() if path.is_file() else None for path in disk.home.iterdir()}
        self.append((files, disk.acked))


def note_is_kept(disk: Disk) -> None:
    """Fail if a note was acknowledged and is not there."""
    assert not disk.acked or read(disk.home) == "text"


def saving(crash: Crash, save: Callable[[Path, str], None]) -> Callable[[Path], None]:
    """Return a workload that saves a note and acknowledges it."""

    def workload(home: Path) -> None:
        save(home, "text")
        crash.ack("text")

    return workload
