"""The stores in SQLite keep every promise of their contracts."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine

from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, SqlSnapshotStore
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from tests.unit.stores.sql.damage import tear


def url(home: Path) -> str:
    return f"sqlite:///{home}/state.db"


def torn(home: Path, contract: str, one: str) -> None:
    engine = create_engine(url(home))
    tear(engine, contract, one)
    engine.dispose()


class TestEffects(EffectSuite):
    def open(self, home: Path) -> SqlEffectStore:
        return SqlEffectStore(url(home))

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
    def open(self, home: Path) -> SqlRunStore:
        return SqlRunStore(url(home))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        torn(home, "runs", id)
