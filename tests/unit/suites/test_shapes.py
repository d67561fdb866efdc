"""Stores of other shapes that are right: no clause fails. With one bug each: its clause fails, and no other."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import (
    FilePausedStore,
    FileResumeStore,
    InvalidSetting,
    MemoryPausedStore,
    PausedWorkflow,
    ResumePoint,
)
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.suites import PausedSuite, ResumeSuite
from pytest_wfstate.zoo.correct_stores import JsonFiles, JsonPaused, JsonResume
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


class SaysWhetherItWasThere(JsonResume):
    """Deleting returns whether there was a point, and ids are slugs, which is declared."""

    def check(self, *ids: str) -> None:
        for run_id in ids:
            if not SLUG.fullmatch(run_id):
                raise Rejected(f"{run_id!r} is not a slug")

    def delete(self, run_id: str) -> Any:
        was_there = self.point(run_id) is not None
        super().delete(run_id)
        return was_there


class SlugSuite(ResumeSuite):
    refusals = (Rejected,)

    def accepts(self, id: str) -> bool | None:  # noqa: A002
        return SLUG.fullmatch(id) is not None

    def open(self, home: Path) -> JsonResume:
        return SaysWhetherItWasThere(home)


@only(
    *("test_save_load", "test_save_replaces", "test_delete_forgets", "test_delete_others", "test_delete_idempotent"),
    *("test_ids_any_text", "test_ids_never_collide", "test_ids_stay_inside", "test_ids_refused", "test_save_bad_id"),
    *("test_random_calls", "test_kill_save", "test_kill_delete", "test_race_save_delete", "test_errors_delete"),
)
class TestSlugs(SlugSuite):
    pass


class InPlace(JsonFiles):
    """Writes a file in place: a crash leaves a part of it."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        with open(self.folder.path(name), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        held.sync()


class SlugsInPlace(InPlace, SaysWhetherItWasThere):
    pass


@only("test_save_load", "test_save_replaces", "test_delete_idempotent", "test_kill_save", "test_race_save_save")
class TestSlugsInPlace(SlugSuite):
    known_failures: ClassVar = {"resume.kill.save": "a point is written in place"}

    def open(self, home: Path) -> JsonResume:
        return SlugsInPlace(home)


class OwnErrors(MemoryPausedStore):
    """Refuses with an error of its own."""

    def save(self, paused: PausedWorkflow) -> None:
        self._refusing(super().save, paused)

    def load(self, run_id: str) -> PausedWorkflow | None:
        loaded: PausedWorkflow | None = self._refusing(super().load, run_id)
        return loaded

    def _refusing(self, call: Callable[..., Any], argument: object) -> Any:
        try:
            return call(argument)
        except (ValueError, TypeError) as error:
            raise Rejected(str(error)) from error


class OwnErrorsSuite(PausedSuite):
    medium = "memory"
    refusals = (Rejected,)
    homes: ClassVar[dict[Path, MemoryPausedStore]] = {}
    kind: ClassVar[type[MemoryPausedStore]] = OwnErrors

    def open(self, home: Path) -> MemoryPausedStore:
        return self.homes.setdefault(home, self.kind()).handle()


@only("test_save_load", "test_save_refused", "test_ids_refused", "test_claim_one_winner", "test_race_claim_claim")
class TestOwnErrors(OwnErrorsSuite):
    pass


class SavesAndRefuses(OwnErrors):
    """A lost update: what is refused has replaced the record."""

    def save(self, paused: PausedWorkflow) -> None:
        if paused.wf_state.get("rate", 0) != 0:
            super().save(paused.model_copy(update={"wf_state": {}}))
        super().save(paused)


@only("test_save_load", "test_save_refused", "test_ids_refused", "test_claim_one_winner")
class TestSavesAndRefuses(OwnErrorsSuite):
    kind = SavesAndRefuses
    known_failures: ClassVar = {"paused.save.refused": "what is refused has replaced the record"}


class ClaimsTwice(AnyOrder):
    def claim(self, run_id: str) -> PausedWorkflow | None:
        if self.load(run_id) is None:
            return None
        paused = self.load(run_id)
        super().claim(run_id)
        return paused


@only("test_list_sorted", "test_claim_takes", "test_claim_one_winner", "test_race_claim_claim")
class TestClaimsTwice(AnyOrderSuite):
    known_failures: ClassVar = {"paused.race.claim-claim": "it looks before it claims, and both win"}

    def open(self, home: Path) -> FilePausedStore:
        return ClaimsTwice(home)


# Deviations that nobody declares hide no other


class Counts(JsonResume):
    """A point is loaded with a step more than it was saved with."""

    def load(self, run_id: str) -> ResumePoint | None:
        point = super().load(run_id)
        return point and point.model_copy(update={"step": point.step + 1})


@only("test_save_load", "test_kill_save", "test_power_delete", "test_race_save_delete")
class TestCounts(ResumeSuite):
    """What is right after a crash and in a race is right."""

    known_failures: ClassVar = {"resume.save.load": "it counts"}

    def open(self, home: Path) -> JsonResume:
        return Counts(home)


class CountsInPlace(InPlace, Counts):
    def delete(self, run_id: str) -> None:
        with self.folder.exclusive() as held:
            self.folder.path(self.name(run_id)).unlink(missing_ok=True)
            if run_id == "a":
                held.sync()


@only("test_save_load", "test_kill_save", "test_power_save", "test_errors_save", "test_race_load")
class TestCountsInPlace(ResumeSuite):
    """What is torn is torn."""

    known_failures: ClassVar = {
        "resume.save.load": "it counts",
        "resume.kill.save": "a point is written in place",
        "resume.power.save": "a point is written in place",
        "resume.errors.save": "a point is written in place",
        "resume.race.load": "a point is written in place",
    }

    def open(self, home: Path) -> JsonResume:
        return CountsInPlace(home)


class NeverTwice(JsonResume):
    """A point cannot be saved again, and nobody says so."""

    def put(self, record: ResumePoint) -> None:
        if self.point(record.run_id) is not None:
            raise Rejected(record.run_id)
        super().put(record)


@only("test_save_replaces", "test_save_load", "test_kill_save", "test_kill_delete", "test_errors_save")
class TestNeverTwice(ResumeSuite):
    known_failures: ClassVar = {"resume.save.replaces": "it does not"}

    def open(self, home: Path) -> JsonResume:
        return NeverTwice(home)


class NeverTwiceInPlace(InPlace, NeverTwice):
    pass


@only("test_save_replaces", "test_save_load", "test_kill_save", "test_kill_delete")
class TestNeverTwiceInPlace(ResumeSuite):
    known_failures: ClassVar = {
        "resume.save.replaces": "it does not",
        "resume.kill.save": "a point is written in place",
        "resume.kill.delete": "a point is written in place, as one is saved again after it was deleted",
    }

    def open(self, home: Path) -> JsonResume:
        return NeverTwiceInPlace(home)


class Receipts(JsonPaused):
    """Completing a run returns a receipt with a number and the time."""

    def complete(self, run_id: str, token: str | None = None) -> Any:
        super().complete(run_id, token)
        return {"run": run_id, "at": datetime.datetime.now(datetime.UTC).isoformat()}


@only("test_complete_ends", "test_kill_complete", "test_race_complete_renew")
class TestReceipts(PausedSuite):
    known_failures: ClassVar = {"paused.complete.ends": "it returns a receipt"}

    def open(self, home: Path) -> JsonPaused:
        return Receipts(home)


class ReceiptsInPlace(InPlace, Receipts):
    pass


@only("test_complete_ends", "test_kill_complete")
class TestReceiptsInPlace(PausedSuite):
    known_failures: ClassVar = {
        "paused.complete.ends": "it returns a receipt",
        "paused.kill.complete": "a run is written in place",
    }

    def open(self, home: Path) -> JsonPaused:
        return ReceiptsInPlace(home)


class Rolls(Counts):
    """What is loaded depends on what was loaded before: two runs of it differ."""

    rolled: ClassVar = itertools.count()

    def load(self, run_id: str) -> ResumePoint | None:
        point = super().load(run_id)
        return point and point.model_copy(update={"step": next(self.rolled)})


@only("test_save_load", "test_kill_save")
class TestRolls(ResumeSuite):
    known_failures: ClassVar = {
        "resume.save.load": "its steps are random",
        "resume.kill.save": "NOT_MEASURED: two of its runs differ",
    }

    def open(self, home: Path) -> JsonResume:
        return Rolls(home)


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
