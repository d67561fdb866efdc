"""Lists that are iterators, sync and async, may be half-read. A store that only claims needs a way to recover."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

from pytest_wfstate import FilePausedStore
from pytest_wfstate.suites import PausedSuite
from tests.unit.suites.only import only

HALF_READ, OFFERED = "test_iterators_half_read", "test_recover_offered"


class InSuite(PausedSuite):
    store: ClassVar[type[Any]]

    def open(self, home: Path) -> Any:
        return self.store(home)


class Generator(FilePausedStore):
    def list(self) -> Iterator[str]:  # type: ignore[override]
        yield from super().list()


@only(HALF_READ, "test_list_sorted")
class TestGenerator(InSuite):
    store = Generator


class AsyncGenerator(FilePausedStore):
    async def list(self) -> AsyncIterator[str]:  # type: ignore[override]
        for run_id in super().list():
            await asyncio.sleep(0)
            yield run_id


@only(HALF_READ, "test_list_sorted")
class TestAsyncGenerator(InSuite):
    store = AsyncGenerator


class ReadsEachFile(FilePausedStore):
    """A run that was removed while the list is read makes reading on fail."""

    def list(self) -> Iterator[str]:  # type: ignore[override]
        for run_id in super().list():
            yield self.load(run_id).run_id  # type: ignore[union-attr]


@only(HALF_READ, "test_list_sorted")
class TestReadsEachFile(InSuite):
    store = ReadsEachFile
    known_failures: ClassVar = {"paused.iterators.half-read": "reading on raises AttributeError"}


class KeepsATransaction(FilePausedStore):
    """The list is read in a transaction of an index, which nothing ends if the list is not read to its end."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.index = sqlite3.connect(home.parent / "index.db", isolation_level=None, timeout=0)
        self.index.execute("CREATE TABLE IF NOT EXISTS saves (run_id)")

    def save(self, paused: Any) -> None:
        super().save(paused)
        if not self.index.in_transaction:
            self.index.execute("INSERT INTO saves VALUES (?)", (paused.run_id,))

    def list(self) -> Any:
        return iter(self._items())

    def _items(self) -> Iterator[str]:
        self.index.execute("BEGIN IMMEDIATE")
        yield from super().list()
        self.index.execute("COMMIT")

    def close(self) -> None:
        self.index.close()
        super().close()


@only(HALF_READ, "test_list_sorted")
class TestKeepsATransaction(InSuite):
    store = KeepsATransaction
    known_failures: ClassVar = {"paused.iterators.half-read": "database is locked"}


class OnlyClaims(FilePausedStore):
    def recover_orphaned(self, older_than: float | None = None) -> int:
        raise NotImplementedError


@only(OFFERED)
class TestOnlyClaims(InSuite):
    store = OnlyClaims
    known_failures: ClassVar = {"paused.recover.offered": "it only claims"}


@only(OFFERED, "test_claim_takes")
class TestRecoversInAnotherWay(InSuite):
    store = OnlyClaims
    unsupported: ClassVar = {"recover": "a service of its own watches the workers"}


class NeverClaims(OnlyClaims):
    claim = None  # type: ignore[assignment]


@only(OFFERED)
class TestNeverClaims(InSuite):
    store = NeverClaims
