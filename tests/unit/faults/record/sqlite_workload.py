"""Workloads on SQLite, and a program that records them all, to be run under strace."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.record.sqlite_vfs import is_rebuilt, watch_sqlite
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import HOME, OPS, Ack, Create, Fsync, Item, Node, Tree, Truncate, Unlink, Write

COMMITS = 4

Calls = list[tuple[str, str, int, int]]
"""System calls by name, file, offset and size."""


def write_commits(log: Log, home: Path, mode: str, level: str) -> sqlite3.Connection:
    """Commit the numbers from 0 on, and acknowledge each."""
    connection = sqlite3.connect(home / "a.db")
    connection.execute(f"pragma journal_mode = {mode}")
    connection.execute(f"pragma synchronous = {level}")
    connection.execute("create table t (number)")
    for number in range(COMMITS):
        commit(connection, number)
        log.add(Ack(number))
    return connection


def commit(connection: sqlite3.Connection, number: int) -> None:
    """Commit one number."""
    connection.execute("insert into t values (?)", (number,))
    connection.commit()


def commit_with(connection: sqlite3.Connection, mode: str, number: int) -> None:
    """Commit one number on a connection that was just opened."""
    connection.execute(f"pragma journal_mode = {mode}")
    commit(connection, number)


def write_two_databases(home: Path) -> None:
    """Commit to two databases at once, which takes a super-journal."""
    with closing(sqlite3.connect(home / "a.db")) as connection:
        connection.execute("attach ? as b", (str(home / "b.db"),))
        for name in ("main", "b"):
            connection.execute(f"create table {name}.t (number)")
        for number in range(COMMITS):
            for name in ("main", "b"):
                connection.execute(f"insert into {name}.t values (?)", (number,))
            connection.commit()


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Make a folder, in memory where possible: these workloads sync a lot."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def on_disk(home: Path) -> dict[str, bytes]:
    """Return the content of the files."""
    return {path.name: path.read_bytes() for path in sorted(home.iterdir()) if not is_rebuilt(str(path))}


def replayed(log: Log, home: Path) -> dict[str, Any]:
    """Return what the trace says of the content of the files."""
    content = log.trace().end().content()
    return {name: content[name] for name in content if not is_rebuilt(str(home / name))}


def rows(home: Path, tree: Tree) -> list[int] | str:
    """Return the numbers in the database of a tree, or what is wrong with it."""
    put(home, tree)
    with closing(sqlite3.connect(home / "a.db")) as connection:
        try:
            (verdict,) = connection.execute("pragma integrity_check").fetchone()
            tables = connection.execute("select name from sqlite_master").fetchall()
            numbers = [number for (number,) in connection.execute("select number from t")] if tables else []
        except sqlite3.DatabaseError as error:
            return str(error)
    return numbers if verdict == "ok" else str(verdict)


def put(home: Path, tree: Tree) -> None:
    """Make the files those of a tree."""
    for path in home.iterdir():
        path.unlink()
    for name, content in tree.content().items():
        assert isinstance(content, bytes)
        home.joinpath(name).write_bytes(content)


CASES = [f"{mode}-{level}" for mode in ("delete", "truncate", "persist", "wal") for level in ("full", "extra")]
CASES += ["delete-normal", "delete-off", "wal-normal", "two-databases"]


def main(root: Path) -> None:
    """Record every case below `root`, and write down the calls that the records stand for."""
    recorded = {}
    for case in CASES:
        home = root / case
        home.mkdir()
        log = Log(home)
        mode, level = case.split("-")
        with watch_sqlite(log):
            if case == "two-databases":
                write_two_databases(home)
            else:
                write_commits(log, home, mode, level).close()
        recorded[case] = calls(log)
    root.joinpath("recorded").write_text(json.dumps(recorded))


def calls(log: Log) -> Calls:
    """Return the system calls that a log stands for, without opens: strace does not show whether one creates a file."""
    system_calls: Calls = []
    known = names(log.items)
    for item in log.items:
        match item:
            case Write():
                system_calls.append(("pwrite64", known[item.node], item.offset, len(item.data)))
            case Truncate():
                system_calls.append(("ftruncate", known[item.node], 0, item.size))
            case Fsync():
                system_calls.append(("fdatasync" if item.data_only else "fsync", known[item.node], 0, 0))
            case Unlink():
                system_calls.append(("unlink", item.name, 0, 0))
    return system_calls


def names(items: Iterable[Item]) -> dict[Node, str]:
    """Return the first name of every new file; home is `.`."""
    made = {item.node: item.name for item in items if isinstance(item, OPS) and isinstance(item, Create)}
    return {HOME: ".", **made}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
