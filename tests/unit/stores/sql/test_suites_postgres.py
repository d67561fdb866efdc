"""The stores in PostgreSQL keep every promise of their contracts that can be tried on a server.

Resume points are kept by handles that connect for themselves. The others share an engine, as those of one program do.
"""

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
from pytest_wfstate.contracts.base import Contract
from pytest_wfstate.labs.storm import Medium
from pytest_wfstate.stores.sql.base import SqlStore
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite
from tests.unit.stores.sql.damage import tear


class OnPostgres:
    """Keeps each home in tables of its own."""

    medium: ClassVar[Medium] = "server"
    server: ClassVar[str | None] = "postgres_server"
    contract: Contract
    url: str
    store: type[SqlStore[Any]]

    @pytest.fixture(autouse=True)
    def _know_server(self, postgres_server: Server) -> None:
        self.direct = postgres_server.url

    def open(self, home: Path) -> Any:
        return self.store(self.where(), prefix=home.name)

    def where(self) -> Any:
        return self.url

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002 - the name that the contracts use
        engine = create_engine(with_driver(self.direct))
        tear(engine, self.contract.name, id, home.name)
        engine.dispose()


class OnOneEngine(OnPostgres):
    """Opens all handles on one engine, and calls them as what they are at heart, without a loop."""

    @pytest.fixture(autouse=True)
    def _have_engine(self, _wfstate_item: None) -> Iterator[None]:
        self.engine = create_engine(with_driver(self.url))
        yield
        self.engine.dispose()

    def where(self) -> Any:
        return self.engine

    def open(self, home: Path) -> Any:
        return as_sync(super().open(home))


def with_driver(url: str) -> str:
    return url.replace("postgresql", "postgresql+psycopg", 1)


class TestEffects(OnOneEngine, EffectSuite):
    store = SqlEffectStore


class TestPaused(OnOneEngine, PausedSuite):
    store = SqlPausedStore


class TestResume(OnPostgres, ResumeSuite):
    store = SqlResumeStore


class TestSnapshots(OnOneEngine, SnapshotSuite):
    store = SqlSnapshotStore


class TestRuns(OnOneEngine, RunSuite):
    store = SqlRunStore
