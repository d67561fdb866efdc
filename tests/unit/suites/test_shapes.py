"""Stores of other shapes that are right: no clause fails. With one bug each: its clause fails, and no other."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import FilePausedStore, FileResumeStore, InvalidSetting, ResumePoint
from pytest_wfstate.suites import PausedSuite, ResumeSuite
from tests.unit.suites.only import only

SLUG = re.compile(r"[a-z0-9-]+")
UNSUPPORTED = {"replace": "a point is written once", "first-use": "tables are made by a migration"}


class Rejected(Exception):
    """The store's own error, related to no other."""


class Rows:
    """Resume points in SQLite. An id is a slug, a record cannot be replaced, and erase says whether there was one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def insert(self, run_id: str, text: str) -> int:
        if not SLUG.fullmatch(run_id):
            raise Rejected(f"{run_id!r} is not a slug")
        try:
            return self.connection.execute("INSERT INTO points VALUES (?, ?)", (run_id, text)).rowcount
        except sqlite3.IntegrityError:
            raise Rejected(f"{run_id!r} exists") from None

    def find(self, run_id: str) -> Iterator[str]:
        if not SLUG.fullmatch(run_id):
            raise Rejected(f"{run_id!r} is not a slug")
        for (text,) in self.connection.execute("SELECT text FROM points WHERE run_id = ?", (run_id,)):
            yield text

    def erase(self, run_id: str) -> bool:
        return self.connection.execute("DELETE FROM points WHERE run_id = ?", (run_id,)).rowcount > 0


class AsResume:
    """Rows, with the methods of the resume contract."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def save(self, point: ResumePoint) -> int:
        return self._rows.insert(point.run_id, ResumePoint.checked(point).to_json())

    def load(self, run_id: str) -> ResumePoint | None:
        return next((ResumePoint.from_json(text, run_id) for text in self._rows.find(run_id)), None)

    def delete(self, run_id: str) -> bool:
        return self._rows.erase(run_id)


def connected(home: Path, synchronous: str = "FULL") -> sqlite3.Connection:
    connection = sqlite3.connect(home / "points.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return connection


class RowSuite(ResumeSuite):
    rows: ClassVar[type[Rows]] = Rows
    refusals = (Rejected,)
    unsupported = UNSUPPORTED
    synchronous = "FULL"

    def prepare(self, home: Path) -> None:
        with contextlib.closing(connected(home)) as connection:
            connection.execute("CREATE TABLE points (run_id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID")

    @contextlib.contextmanager
    def open(self, home: Path) -> Iterator[Rows]:
        with contextlib.closing(connected(home, self.synchronous)) as connection:
            yield self.rows(connection)

    def adapt(self, store: Rows) -> AsResume:
        return AsResume(store)

    def accepts(self, id: str) -> bool | None:  # noqa: A002
        return SLUG.fullmatch(id) is not None

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        with contextlib.closing(connected(home)) as connection:
            connection.execute("UPDATE points SET text = substr(text, 1, 20) WHERE run_id = ?", (id,))


class TestRows(RowSuite):
    """What its shape is, it declares."""


@only("test_ids_any_text", "test_ids_never_collide", "test_ids_stay_inside", "test_delete_others", "test_save_load")
class TestUndeclaredIds(RowSuite):
    """That some ids are refused is reported once."""

    known_failures: ClassVar = {"resume.ids.any-text": "only slugs"}

    def accepts(self, id: str) -> None:  # noqa: A002, ARG002
        return None


class ReplacesAndRefuses(Rows):
    def insert(self, run_id: str, text: str) -> int:
        try:
            return super().insert(run_id, text)
        except Rejected:
            self.connection.execute("UPDATE points SET text = ? WHERE run_id = ?", (text, run_id))
            raise


@only("test_save_load", "test_save_replaces", "test_delete_forgets")
class TestReplacesAndRefuses(RowSuite):
    """A refusal must change nothing, even one that is allowed."""

    rows = ReplacesAndRefuses
    known_failures: ClassVar = {
        "resume.save.replaces": "it does",
        "resume.delete.forgets": "it saves a record twice",
    }


class ErasesAll(Rows):
    def erase(self, run_id: str) -> bool:
        return self.connection.execute("DELETE FROM points WHERE run_id LIKE ?", (f"{run_id}%",)).rowcount > 0


@only("test_delete_others", "test_save_load", "test_save_survives_restart", "test_delete_idempotent")
class TestErasesAll(RowSuite):
    rows = ErasesAll
    known_failures: ClassVar = {"resume.delete.others": "it deletes by prefix"}


@only("test_power_save", "test_kill_save", "test_save_load")
class TestNotDurable(RowSuite):
    """Of a store that cannot replace a record, saving one is crashed all the same."""

    synchronous = "OFF"
    known_failures: ClassVar = {"resume.power.save": "nothing is synced"}


class AnyOrder(FilePausedStore):
    """Lists runs in the order of their last letters."""

    def list(self) -> list[str]:
        return sorted(super().list(), key=lambda run_id: run_id[::-1], reverse=True)


class AnyOrderSuite(PausedSuite):
    level = "safe"
    unsupported: ClassVar = {"order": "a folder has no order"}

    def open(self, home: Path) -> FilePausedStore:
        return AnyOrder(home)


@only("test_list_sorted", "test_recover_rearms", "test_race_list", "test_random_calls", "test_claim_others")
class TestAnyOrder(AnyOrderSuite):
    pass


class ListsTwice(AnyOrder):
    def list(self) -> list[str]:
        return super().list() * 2


@only("test_list_sorted", "test_save_load", "test_load_missing")
class TestListsTwice(AnyOrderSuite):
    known_failures: ClassVar = {"paused.save.load": "a run is listed twice"}

    def open(self, home: Path) -> FilePausedStore:
        return ListsTwice(home)


class FirstUse(ResumeSuite):
    def open(self, home: Path) -> FileResumeStore:
        return FileResumeStore(home / "points")


@only("test_race_first_use", "test_save_load")
class TestFirstUse(FirstUse):
    def prepare(self, home: Path) -> None:
        (home / "points").mkdir(exist_ok=True)


@only("test_race_first_use", "test_race_save_save", "test_save_load")
class TestMakesFolderTwice(FirstUse):
    known_failures: ClassVar = {"resume.race.first-use": "both find no folder, and both make it"}

    def prepare(self, home: Path) -> None:
        if not (home / "points").exists():
            (home / "points").mkdir()


# How a store is opened


class Entered:
    """A store that has to be entered, by `async with`, before it can be adapted."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.inner: FileResumeStore | None = None

    async def __aenter__(self) -> Entered:
        self.inner = FileResumeStore(self.home)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.inner is not None
        self.inner.close()
        self.inner = None


@only("test_save_load", "test_save_survives_restart", "test_kill_delete", "test_race_delete_delete")
class TestEntered(ResumeSuite):
    def open(self, home: Path) -> Entered:
        return Entered(home)

    def adapt(self, store: Entered) -> FileResumeStore:
        assert store.inner is not None
        return store.inner


@only("test_save_load", "test_save_survives_restart", "test_kill_delete", "test_race_delete_delete")
class TestAsyncContext(ResumeSuite):
    left: ClassVar[list[FileResumeStore]] = []

    @contextlib.asynccontextmanager
    async def open(self, home: Path) -> AsyncIterator[FileResumeStore]:
        store = FileResumeStore(home)
        yield store
        self.left.append(store)

    def test_it_is_left(self, tmp_path: Path) -> None:
        self.left.clear()
        with self.context.handles(tmp_path) as handles:
            assert self.left == []
            store = handles["store"]
        assert self.left == [store]


class NeverEntered(FileResumeStore):
    """A store that is a context manager, too, is used as it is."""

    def __enter__(self) -> Any:
        raise AssertionError("it begins a transaction")


@only("test_save_load")
class TestNeverEntered(ResumeSuite):
    def open(self, home: Path) -> NeverEntered:
        return NeverEntered(home)


# Settings


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("unsupported", {"replaces": "no"}, r"names 'replaces'\. A store may leave out: 'replace' \(saving a record"),
        ("refusals", (Exception,), r"refusals of Wrong is .*: neither Exception nor OSError"),
        ("refusals", ("Rejected",), r"It must be a tuple of classes"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        type("Wrong", (ResumeSuite,), {name: value})
