"""The stores in SQLite keep every promise of their contracts.

Of the three that are async, the snapshots are awaited. The others are called as what they are at heart: without a loop
and a thread for each call more disks can be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, SqlSnapshotStore, as_sync
from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.stores.sql.base import SqlStore
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from tests.unit.stores.sql.damage import tear


class InSqlite:
    """Keeps each home in a database of its own."""

    contract: Contract
    store: type[SqlStore[Any]]

    def open(self, home: Path) -> Any:
        return self.store(url(home))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002 - the name that the contracts use
        engine = create_engine(url(home))
        tear(engine, self.contract.name, id)
        engine.dispose()


def url(home: Path) -> str:
    return f"sqlite:///{home}/state.db"


class TestEffects(InSqlite, EffectSuite):
    store = SqlEffectStore

    def open(self, home: Path) -> Any:
        return as_sync(super().open(home))


class TestPaused(InSqlite, PausedSuite):
    store = SqlPausedStore


class TestResume(InSqlite, ResumeSuite):
    store = SqlResumeStore


class TestSnapshots(InSqlite, SnapshotSuite):
    store = SqlSnapshotStore


class TestRuns(InSqlite, RunSuite):
    store = SqlRunStore

    def open(self, home: Path) -> Any:
        return as_sync(super().open(home))
