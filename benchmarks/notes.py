"""Two stores of notes, and a process that saves notes until it is killed: the subjects of `crash_states.py`.

It imports only what it needs, so that starting the process costs as little as possible.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Store(Protocol):
    """Save a note, and load the last one."""

    notes: int
    """The number of notes to save."""

    def save(self, number: int) -> None:
        """Save a note durably."""

    def load(self) -> int:
        """Return the last note, or 0 if there is none."""

    def close(self) -> None:
        """Close the store."""


class JsonStore:
    """One file, replaced by rename."""

    notes = 20

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "note.json"

    def save(self, number: int) -> None:
        """Save a note durably."""
        tmp = self._home / "note.tmp"
        with open(tmp, "w") as file:
            json.dump({"number": number, "text": "x" * 6000}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, self._file)
        fd = os.open(self._home, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def load(self) -> int:
        """Return the last note, or 0 if there is none."""
        try:
            return int(json.loads(self._file.read_text())["number"])
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close the store."""


class SqliteStore:
    """One table, in a database with a write-ahead log."""

    notes = 10

    def __init__(self, home: Path) -> None:
        self._db = sqlite3.connect(home / "notes.db", isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute("create table if not exists notes (number, text)")

    def save(self, number: int) -> None:
        """Save a note durably."""
        self._db.execute("insert into notes values (?, ?)", (number, "x" * 600))

    def load(self) -> int:
        """Return the last note, or 0 if there is none."""
        (number,) = self._db.execute("select max(number) from notes").fetchone()
        return number or 0

    def close(self) -> None:
        """Close the store."""
        self._db.close()


STORES: dict[str, Callable[[Path], Store]] = {"JSON file": JsonStore, "SQLite": SqliteStore}


def work(store: Store, saved: Callable[[int], None]) -> None:
    """Save notes, and report each."""
    with contextlib.closing(store):
        for number in range(1, store.notes + 1):
            store.save(number)
            saved(number)


def die_at(point: int) -> Callable[[], None]:
    """Return a function to call at each point: the process kills itself at one of them."""
    reached = iter(range(1, point + 1))

    def reach() -> None:
        if next(reached) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


def before(reach: Callable[[], None], *names: str) -> None:
    """Turn these system calls into points, right before they run."""

    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            reach()
            return function(*args)

        return call

    for name in names:
        setattr(os, name, wrapped(getattr(os, name)))


def main(name: str, home: Path, point: int) -> None:
    """Save notes and die at a point: a system call of the file store, or a note of SQLite, whose calls are not seen."""
    reach = die_at(point)
    before(reach, "fsync", "replace")

    def saved(number: int) -> None:
        print(number, flush=True)
        reach()

    work(STORES[name](home), saved)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
