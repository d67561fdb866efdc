"""What every second store on aiosqlite does when it is cancelled between a statement and its commit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import aiosqlite

from pytest_wfstate import ResumePoint
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.only import only


class NeverRollsBack:
    """A cancelled change leaves its transaction open: until somebody uses the handle, all others are locked out."""

    def __init__(self, db: aiosqlite.Connection) -> None:
        self.db = db

    async def save(self, point: ResumePoint) -> None:
        await self.db.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (point.run_id, point.to_json()))
        await self.db.commit()

    async def load(self, run_id: str) -> ResumePoint | None:
        async with self.db.execute("SELECT text FROM points WHERE run_id = ?", (run_id,)) as rows:
            row = await rows.fetchone()
        return ResumePoint.from_json(row[0], run_id) if row else None

    async def delete(self, run_id: str) -> None:
        await self.db.execute("DELETE FROM points WHERE run_id = ?", (run_id,))
        await self.db.commit()


class RollsBack(NeverRollsBack):
    async def save(self, point: ResumePoint) -> None:
        async with self.transaction():
            await super().save(point)

    async def delete(self, run_id: str) -> None:
        async with self.transaction():
            await super().delete(run_id)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.db.rollback()
            raise


class InSuite(ResumeSuite):
    store: ClassVar[type[NeverRollsBack]]

    @contextlib.asynccontextmanager
    async def open(self, home: Path) -> AsyncIterator[NeverRollsBack]:
        async with aiosqlite.connect(home / "points.db", timeout=0.01) as db:
            await db.execute("PRAGMA journal_mode=WAL")
            await db.execute("CREATE TABLE IF NOT EXISTS points (run_id PRIMARY KEY, text)")
            await db.commit()
            yield self.store(db)


@only("test_cancel_save", "test_cancel_delete")
class TestNeverRollsBack(InSuite):
    store = NeverRollsBack
    known_failures: ClassVar = {
        "resume.cancel.save": "database is locked",
        "resume.cancel.delete": "database is locked",
    }


@only("test_cancel_save", "test_cancel_delete")
class TestRollsBack(InSuite):
    store = RollsBack
