"""The stores in PostgreSQL keep every promise of their contracts that can be tried on a server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import create_engine

from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, SqlSnapshotStore
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from pytest_wfstate.suites.clauses import Medium
from tests.unit.stores.sql.damage import tear
from tests.unit.stores.sql.server import Server


class OnPostgres:
    """Keeps each home in tables of its own."""

    medium: ClassVar[Medium] = "server"

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Server) -> None:
        self.url = postgres.url

    def torn(self, home: Path, contract: str, one: str) -> None:
        engine = create_engine(self.url.replace("postgresql", "postgresql+psycopg", 1))
        tear(engine, contract, one, home.name)
        engine.dispose()


class TestEffects(OnPostgres, EffectSuite):
    def open(self, home: Path) -> SqlEffectStore:
        return SqlEffectStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "effects", id)


class TestPaused(OnPostgres, PausedSuite):
    def open(self, home: Path) -> SqlPausedStore:
        return SqlPausedStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "paused", id)


class TestResume(OnPostgres, ResumeSuite):
    def open(self, home: Path) -> SqlResumeStore:
        return SqlResumeStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "resume", id)


class TestSnapshots(OnPostgres, SnapshotSuite):
    def open(self, home: Path) -> SqlSnapshotStore:
        return SqlSnapshotStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "snapshots", id)


class TestRuns(OnPostgres, RunSuite):
    def open(self, home: Path) -> SqlRunStore:
        return SqlRunStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "runs", id)
