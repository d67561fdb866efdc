"""Stores that are a few lines of sqlite3, as most people write their first one: what is right about them passes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import ClassVar

from pytest_wfstate import PausedWorkflow
from pytest_wfstate.suites import PausedSuite
from tests.unit.suites.only import only


class Rows:
    """A row for each run. It has no method that closes it."""

    journal = "WAL"

    def __init__(self, home: Path) -> None:
        self.db = sqlite3.connect(home / "runs.db", isolation_level=None)
        self.db.execute("PRAGMA synchronous = EXTRA")
        self.db.execute(f"PRAGMA journal_mode = {self.journal}")
        self.db.execute("CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, json TEXT, state TEXT)")

    def save(self, paused: PausedWorkflow) -> None:
        self.db.execute("REPLACE INTO runs VALUES (?, ?, 'paused')", (paused.run_id, paused.to_json()))

    def load(self, run_id: str) -> PausedWorkflow | None:
        found = self.db.execute("SELECT json FROM runs WHERE run_id = ? AND state = 'paused'", (run_id,)).fetchone()
        return PausedWorkflow.from_json(found[0], run_id) if found else None

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claim = "UPDATE runs SET state = 'claimed' WHERE run_id = ? AND state = 'paused' RETURNING json"
        found = self.db.execute(claim, (run_id,)).fetchall()
        return PausedWorkflow.from_json(found[0][0], run_id) if found else None

    def complete(self, run_id: str) -> None:
        self.db.execute("DELETE FROM runs WHERE run_id = ? AND state = 'claimed'", (run_id,))

    def recover_orphaned(self) -> int:
        return self.db.execute("UPDATE runs SET state = 'paused' WHERE state = 'claimed'").rowcount

    def list(self) -> list[str]:
        return [run for (run,) in self.db.execute("SELECT run_id FROM runs WHERE state = 'paused' ORDER BY run_id")]


@only("test_kill_claim", "test_errors_complete")
class TestNeverClosed(PausedSuite):
    """A connection is closed as garbage before anything else happens in its folder, not in the middle of it."""

    def open(self, home: Path) -> Rows:
        return Rows(home)


class OnARollbackJournal(Rows):
    journal = "DELETE"

    def close(self) -> None:
        self.db.close()


@only("test_kill_complete")
class TestSomeCallsChangeNothing(PausedSuite):
    """A run that is paused again has no claim: a row for each run has nothing to drop then, and nothing is missing."""

    def open(self, home: Path) -> OnARollbackJournal:
        return OnARollbackJournal(home)


class TakesErrorsForMissing(Rows):
    """Reads of the disk that fail look like a missing record. What `list` has read is in SQLite's cache."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        try:
            return super().load(run_id)
        except sqlite3.Error:
            return None

    def close(self) -> None:
        self.db.close()


@only("test_errors_reads")
class TestTakesErrorsForMissing(PausedSuite):
    known_failures: ClassVar = {"paused.errors.reads": "an I/O error looks like a missing record"}

    def open(self, home: Path) -> TakesErrorsForMissing:
        return TakesErrorsForMissing(home)
