"""Eight ways to save a note of 6 kB, from careless to sound: the rows of the verdict table."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

Save = Callable[[int], None]
Protocol = Callable[[Path], contextlib.AbstractContextManager[Save]]


def note(number: int) -> bytes:
    return json.dumps({"number": number, "text": "x" * 6000}).encode()


def overwrite_in_place(home: Path, number: int) -> None:
    with open(home / "note", "wb") as file:
        file.write(note(number))
        file.flush()
        os.fsync(file.fileno())


def tmp_and_rename(home: Path, number: int) -> None:
    (home / "note.tmp").write_bytes(note(number))
    (home / "note.tmp").replace(home / "note")


def fsync_of_the_file(home: Path, number: int) -> None:
    with open(home / "note.tmp", "wb") as file:
        file.write(note(number))
        file.flush()
        os.fsync(file.fileno())
    os.replace(home / "note.tmp", home / "note")


def fsync_of_the_folder(home: Path, number: int) -> None:
    fsync_of_the_file(home, number)
    folder = os.open(home, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def on_files(save: Callable[[Path, int], None]) -> Protocol:
    @contextlib.contextmanager
    def protocol(home: Path) -> Iterator[Save]:
        yield lambda number: save(home, number)

    return protocol


def sqlite(journal_mode: str, synchronous: str) -> Protocol:
    @contextlib.contextmanager
    def protocol(home: Path) -> Iterator[Save]:
        with contextlib.closing(sqlite3.connect(home / "notes.db")) as connection:
            connection.execute(f"pragma journal_mode = {journal_mode}")
            connection.execute(f"pragma synchronous = {synchronous}")

            def save(number: int) -> None:
                with connection:
                    connection.execute("create table if not exists notes (id primary key, number, text)")
                    row = (number, note(number))
                    connection.execute("insert or replace into notes values (1, ?, ?)", row)

            yield save

    return protocol


PROTOCOLS: dict[str, Protocol] = {
    "overwrite in place": on_files(overwrite_in_place),
    "tmp + rename": on_files(tmp_and_rename),
    "+ fsync of the file": on_files(fsync_of_the_file),
    "+ fsync of the folder": on_files(fsync_of_the_folder),
    "SQLite rollback journal, FULL": sqlite("delete", "full"),
    "SQLite rollback journal, EXTRA": sqlite("delete", "extra"),
    "SQLite WAL, FULL": sqlite("wal", "full"),
    "SQLite WAL, NORMAL": sqlite("wal", "normal"),
}


def read(home: Path) -> int:
    """Return the number of the note, or 0 if there is none. Raise if it cannot be read."""
    if (home / "notes.db").exists():
        return _read_sqlite(home / "notes.db")
    try:
        number: int = json.loads((home / "note").read_bytes())["number"]
    except FileNotFoundError:
        return 0
    return number


def _read_sqlite(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (verdict,) = connection.execute("pragma integrity_check").fetchone()
        if verdict != "ok":
            raise ValueError(verdict)
        if connection.execute("select count(*) from sqlite_master").fetchone() == (0,):
            return 0
        rows = connection.execute("select number, text from notes").fetchall()
    for number, text in rows:
        if text != note(number):
            raise ValueError("torn")
    return max((number for number, _ in rows), default=0)
