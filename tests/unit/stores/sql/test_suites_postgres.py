"""The stores in PostgreSQL keep every promise of their contracts that can be tried on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import create_engine

from pytest_wfstate import (
    Server,
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    as_sync,
)
from pytest_wfstate.faults.servers import leftovers
from pytest_wfstate.stores.sql.base import SqlStore
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from pytest_wfstate.suites.clauses import Medium
from tests.unit.stores.sql.damage import tear


class OnPostgres:
    """Keeps each home in tables of its own."""

    medium: ClassVar[Medium] = "server"
    server: ClassVar[str | None] = "postgres_server"
    url: str
    store: type[SqlStore[Any]]

    @pytest.fixture(autouse=True)
    def _leave_no_table(self, postgres_server: Server) -> Iterator[None]:
        self.direct = postgres_server.url
        self.used: set[str] = set()
        yield
        leftovers.remove(self.direct, self.used)

    def open(self, home: Path) -> Any:
        self.used.add(home.name)
        return self.store(self.url, prefix=home.name)

    def torn(self, home: Path, contract: str, one: str) -> None:
        engine = create_engine(with_driver(self.direct))
        tear(engine, contract, one, home.name)
        engine.dispose()


class OnOneEngine(OnPostgres):
    """Opens all handles on one engine, as an application does that has one."""

    @pytest.fixture(autouse=True)
    def _have_engine(self, _wfstate_item: None) -> Iterator[None]:
        self.engine = create_engine(with_driver(self.url))
        yield
        self.engine.dispose()

    def open(self, home: Path) -> Any:
        self.used.add(home.name)
        return as_sync(self.store(self.engine, prefix=home.name))


def with_driver(url: str) -> str:
    return url.replace("postgresql", "postgresql+psycopg", 1)


class TestEffects(OnOneEngine, EffectSuite):
    store = SqlEffectStore

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "effects", id)


class TestPaused(OnOneEngine, PausedSuite):
    store = SqlPausedStore

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "paused", id)


class TestResume(OnPostgres, ResumeSuite):
    store = SqlResumeStore

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "resume", id)


class TestSnapshots(OnPostgres, SnapshotSuite):
    store = SqlSnapshotStore

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "snapshots", id)


class TestRuns(OnOneEngine, RunSuite):
    store = SqlRunStore

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.torn(home, "runs", id)
