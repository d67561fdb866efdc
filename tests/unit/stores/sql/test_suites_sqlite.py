"""The stores in SQLite keep every promise of their contracts.

Of the three that are async, the snapshots are awaited. The others are called as what they are at heart: without a loop
and a thread for each call more disks can be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, SqlSnapshotStore, as_sync
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from tests.unit.stores.sql.damage import tear


def url(home: Path) -> str:
    return f"sqlite:///{home}/state.db"


def torn(home: Path, contract: str, one: str) -> None:
    engine = create_engine(url(home))
    tear(engine, contract, one)
    engine.dispose()


class TestEffects(EffectSuite):
    def open(self, home: Path) -> Any:
        return as_sync(SqlEffectStore(url(home)))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "effects", id)


class TestPaused(PausedSuite):
    def open(self, home: Path) -> SqlPausedStore:
        return SqlPausedStore(url(home))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "paused", id)


class TestResume(ResumeSuite):
    def open(self, home: Path) -> SqlResumeStore:
        return SqlResumeStore(url(home))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "resume", id)


class TestSnapshots(SnapshotSuite):
    def open(self, home: Path) -> SqlSnapshotStore:
        return SqlSnapshotStore(url(home))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "snapshots", id)


class TestRuns(RunSuite):
    def open(self, home: Path) -> Any:
        return as_sync(SqlRunStore(url(home)))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "runs", id)
