"""A store on a rollback journal of SQLite loses commits to power cuts; the clauses about errors do not repeat that."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pytest_wfstate import ResumePoint
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.only import only


class RollbackStore:
    """Keeps resume points in a table. With synchronous=FULL, a power cut can bring back a journal that was removed."""

    def __init__(self, home: Path) -> None:
        self._connection = sqlite3.connect(home / "db", isolation_level=None)
        self._connection.execute("pragma journal_mode=delete")
        self._connection.execute("pragma synchronous=full")
        self._connection.execute("create table if not exists points (run_id primary key, text)")

    def save(self, point: ResumePoint) -> None:
        self._connection.execute("insert or replace into points values (?, ?)", (point.run_id, point.to_json()))

    def load(self, run_id: str) -> ResumePoint | None:
        row = self._connection.execute("select text from points where run_id = ?", (run_id,)).fetchone()
        return ResumePoint.from_json(row[0], "db") if row else None

    def delete(self, run_id: str) -> None:
        self._connection.execute("delete from points where run_id = ?", (run_id,))

    def close(self) -> None:
        self._connection.close()


@only("test_errors_save", "test_errors_reads")
class TestRollback(ResumeSuite):
    def open(self, home: Path) -> RollbackStore:
        return RollbackStore(home)
