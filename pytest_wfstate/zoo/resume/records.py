"""Resume stores that change, mix up or hide what they are given to keep: values, ids, damaged files."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.errors import CorruptRecord, NotFound
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.stores.file._names import stem
from pytest_wfstate.zoo._json import JsonResume
from pytest_wfstate.zoo.base import animal


@animal(
    "resume",
    "load.missing",
    "save.load",
    "delete.forgets",
    "delete.idempotent",
    "ids.never-collide",
    "random.calls",
    "save.after-delete",
    "delete.seen-at-once",
    "delete.others",
    "load.before-folder",
    "corrupt.heals",
    "save.unsound",
)
class MissingIsAnError(JsonResume):
    """To load a run that has no point is an error, as if something were wrong. A new run cannot start."""

    def load(self, run_id: str) -> ResumePoint | None:
        point = super().load(run_id)
        if point is None:
            raise NotFound(f"there is no run {run_id!r}")
        return point


@animal(
    "resume",
    "save.replaces",
    "save.survives-restart",
    "handles.see-each-other",
    "random.calls",
    "save.shorter",
    "save.others",
    "save.elsewhere",
    "corrupt.heals",
    "errors.delete",
)
class SaveKeepsTheFirst(JsonResume):
    """A point is written only where there is none, so that nothing is ever written over.

    The run goes on where it began.
    """

    def put(self, point: ResumePoint) -> None:
        if self.load(point.run_id) is None:
            super().put(point)


@animal(
    "resume",
    "save.replaces",
    "save.survives-restart",
    "delete.forgets",
    "ids.never-collide",
    "corrupt.stays-local",
    "random.calls",
    "save.any-json",
    "save.others",
    "delete.others",
    "corrupt.heals",
)
class OneRunAtATime(JsonResume):
    """A save clears the folder, for there is one run at a time.

    The day there are two, each removes the other's point.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.unlink(*(other for other in held.names() if other != name))
        super().write(held, name, data)


@animal("resume", "random.calls", "save.shorter")
class MergesScopes(JsonResume):
    """A save updates the scope that is there. What the run has dropped from its scope is back after a restart."""

    def put(self, point: ResumePoint) -> None:
        with contextlib.suppress(CorruptRecord):
            before = self.load(point.run_id)
            if before and isinstance(before.scope_snapshot, dict) and isinstance(point.scope_snapshot, dict):
                point.scope_snapshot = before.scope_snapshot | point.scope_snapshot
        super().put(point)


@animal("resume", "random.calls", "save.shorter", "save.elsewhere")
class NeverTruncates(JsonResume):
    """A file is written from its start, over what is there.

    A short point leaves the end of a long one behind it, and cannot be read.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        before = self.folder.read(name) or b""
        super().write(held, name, data + before[len(data) :])


@animal("resume", "values.falsy")
class EmptyScopeIsLost(JsonResume):
    """A scope that is empty, zero or false is loaded as an empty dictionary, by an `or`.

    The run is given what it never had.
    """

    def load(self, run_id: str) -> ResumePoint | None:
        point = super().load(run_id)
        return point.model_copy(update={"scope_snapshot": point.scope_snapshot or {}}) if point else None


@animal("resume", "values.falsy", "save.any-json", "save.exact-numbers")
class ScopesAreDictionaries(JsonResume):
    """A scope that is no dictionary is refused, since those of the first workflows all were.

    A run whose scope is a list has no point to resume at.
    """

    def put(self, point: ResumePoint) -> None:
        if not isinstance(point.scope_snapshot, dict):
            raise ValueError("a scope is a dictionary")
        super().put(point)


@animal("resume", "save.exact-numbers")
class NumbersAreDoubles(JsonResume):
    """Whole numbers pass through a double, as in JavaScript. An account number of 17 digits ends in another digit."""

    def parse(self, data: bytes) -> dict[str, Any]:
        super().parse(data)
        document: dict[str, Any] = json.loads(data, parse_int=lambda digits: int(float(digits)))
        return document | {"step": json.loads(data)["step"]}


@animal("resume", "values.unicode", "ids.any-text", "ids.never-collide")
class AsciiOnly(JsonResume):
    """Text is written as ASCII, and what is not is left out without a word. The node `prüfen` is not found again."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data.decode().encode("ascii", errors="ignore"))


@animal("resume", "values.large")
class OneWriteOf64K(JsonResume):
    """A file is written with one call that takes 64 KiB at most. A longer point is cut, and cannot be read."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data[: 64 * 1024])


@animal("resume", "save.unsound")
class SavesNaN(JsonResume):
    """A point is written with `json.dumps`, which writes NaN.

    What reads it back refuses it, and the point before is gone.
    """

    def save(self, point: ResumePoint) -> None:
        self.check(point.run_id)
        with self.folder.exclusive() as held:
            self.write(held, self.name(point.run_id), json.dumps(point.model_dump()).encode())


@animal("resume", "aliasing.saved")
class KeepsTheCallersObject(JsonResume):
    """A handle keeps what it saved to save a look at the disk: the caller's own object.

    The run goes on, changes its scope, and with it the point to which it should return.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._kept: dict[bytes, ResumePoint] = {}

    def save(self, point: ResumePoint) -> None:
        super().save(point)
        self._kept[self.folder.read(self.name(point.run_id)) or b""] = point

    def load(self, run_id: str) -> ResumePoint | None:
        found = super().load(run_id)
        kept = self._kept.get(self.folder.read(self.name(run_id)) or b"") if found else None
        return found if kept is None else kept.model_copy(deep=True)


@animal("resume", "aliasing.loaded")
class HandsOutItsCache(JsonResume):
    """A handle parses a file once, and gives everybody the same object.

    A run that tries a step changes the scope for the next try.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._parsed: dict[bytes, ResumePoint | None] = {}

    def load(self, run_id: str) -> ResumePoint | None:
        self.check(run_id)
        data = self.folder.read(self.name(run_id)) or b""
        if data not in self._parsed:
            self._parsed[data] = super().load(run_id)
        return self._parsed[data]


@animal("resume", "handles.see-each-other", "random.calls", "save.elsewhere", "delete.seen-at-once")
class LoadsOnce(JsonResume):
    """A handle keeps what it loaded until it saves or deletes the run itself.

    It resumes where another worker has long gone on.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._seen: dict[str, ResumePoint | None] = {}

    def load(self, run_id: str) -> ResumePoint | None:
        if run_id not in self._seen:
            self._seen[run_id] = super().load(run_id)
        seen = self._seen[run_id]
        return seen.model_copy(deep=True) if seen else None

    def put(self, point: ResumePoint) -> None:
        super().put(point)
        self._seen.pop(point.run_id, None)

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        super().delete(run_id)
        self._seen.pop(run_id, None)


@animal("resume", "random.calls", "save.elsewhere")
class SkipsEqualSaves(JsonResume):
    """A handle does not write a point that equals the last one it wrote.

    If another worker wrote one in between, that one stays.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: dict[str, str] = {}

    def put(self, point: ResumePoint) -> None:
        if self._last.get(point.run_id) != point.to_json():
            super().put(point)
            self._last[point.run_id] = point.to_json()

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        super().delete(run_id)
        self._last.pop(run_id, None)


@animal(
    "resume",
    "save.survives-restart",
    "delete.forgets",
    "handles.see-each-other",
    "values.falsy",
    "values.unicode",
    "values.large",
    "ids.any-text",
    "ids.never-collide",
    "aliasing.saved",
    "aliasing.loaded",
    "corrupt.stays-local",
    "random.calls",
    "save.shorter",
    "save.any-json",
    "save.exact-numbers",
    "save.others",
    "save.after-delete",
    "save.elsewhere",
    "delete.seen-at-once",
    "delete.others",
    "load.before-folder",
    "corrupt.heals",
    "save.unsound",
)
class IndexInMemory(JsonResume):
    """A handle knows its runs by an index that it never writes.

    After a restart, for which all this is there, no run is known.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._runs: set[str] = set()

    def put(self, point: ResumePoint) -> None:
        super().put(point)
        self._runs.add(point.run_id)

    def load(self, run_id: str) -> ResumePoint | None:
        point = super().load(run_id)
        return point if run_id in self._runs else None


@animal("resume", "ids.any-text", "ids.never-collide")
class SanitisedIds(JsonResume):
    """Whatever is not a letter, a digit, `-` or `_` becomes `_` in the file's name.

    The runs `a/b` and `a_b` share a point.
    """

    def name(self, *ids: str) -> str:
        return re.sub(r"[^\w-]", "_", ids[0]) + ".json"


@animal("resume", "ids.never-collide")
class CaseFoldedIds(JsonResume):
    """File names are in lower case, to be safe on every disk. `run` and `Run` are one run."""

    def name(self, *ids: str) -> str:
        return super().name(ids[0].lower())


@animal("resume", "ids.never-collide")
class IdsCutAt64(JsonResume):
    """The id is cut to 64 characters to make a file's name. Runs that differ in the 65th are one."""

    def name(self, *ids: str) -> str:
        return super().name(ids[0][:64])


@animal("resume", "ids.any-text", "ids.never-collide", "ids.stay-inside")
class IdsAsPaths(JsonResume):
    """The id is put into the path as it is.

    `../outside` is a file in the folder above, and `a/b` one in a folder that is not there.
    """

    def name(self, *ids: str) -> str:
        return f"{ids[0]}.json"


@animal("resume", "ids.refused", "save.bad-id")
class TakesAnyId(JsonResume):
    """Ids are not looked at. All runs of which somebody forgot the id go on at the same point."""

    def check(self, *ids: str) -> None:
        pass


@animal(
    "resume",
    "delete.idempotent",
    "random.calls",
    "delete.others",
    "load.before-folder",
    "kill.delete",
    "power.delete",
    "errors.delete",
)
class DeleteWantsIt(JsonResume):
    """To delete a run that is not there is an error. Who cleans up after a crash, and is not the first, fails."""

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        if not self.folder.path(self.name(run_id)).exists():
            raise NotFound(f"there is no run {run_id!r}")
        super().delete(run_id)


@animal("resume", "delete.others")
class DeletesAllThatBeginAlike(JsonResume):
    """A delete takes along every file that begins with the id. With `run-1` goes `run-10`."""

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        self.check(run_id)
        with self.folder.exclusive() as held:
            held.unlink(*(name for name in held.names() if name.startswith(stem(run_id))))
            held.sync()


@animal("resume", "random.calls", "save.after-delete", "delete.seen-at-once", "load.before-folder")
class DeletedForGood(JsonResume):
    """A delete leaves a tombstone, lest a late save bring the run back. Nobody can ever use the id again."""

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        super().delete(run_id)
        with self.folder.exclusive() as held:
            held.replace(stem(run_id) + ".gone", b"")

    def write(self, held: Held, name: str, data: bytes) -> None:
        if not held.exists(name.replace(".json", ".gone")):
            super().write(held, name, data)


@animal("resume", "delete.forgets", "random.calls")
class BackupComesBack(JsonResume):
    """The point before the last is kept as a backup, and loaded if there is no other.

    A delete leaves it, and the run goes on at a step that it has done.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        before = self.folder.read(name)
        if before is not None:
            held.replace(name + ".bak", before)
        super().write(held, name, data)

    def read(self, *ids: str) -> dict[str, Any]:
        backup = self.folder.read(self.name(*ids) + ".bak")
        return super().read(*ids) or (self.parse(backup) if backup else {})


@animal("resume", "load.before-folder")
class FolderWanted(JsonResume):
    """To load a run, the folder is listed.

    Before the first save there is none, and a new run fails with an error that names a folder nobody knows.
    """

    def load(self, run_id: str) -> ResumePoint | None:
        os.listdir(self.folder.home)
        return super().load(run_id)


@animal("resume", "corrupt.is-loud")
class DamagedIsMissing(JsonResume):
    """A file that cannot be read is taken for no point. The run begins again, and does everything twice."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@animal("resume", "corrupt.heals")
class LooksBeforeItSaves(JsonResume):
    """Before it saves or deletes, the store loads what is there, to log it.

    A file that cannot be read can neither be replaced nor removed.
    """

    def put(self, point: ResumePoint) -> None:
        self.load(point.run_id)
        super().put(point)

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        self.load(run_id)
        super().delete(run_id)


@animal("resume", "corrupt.stays-local")
class OneBadFileBlindsAll(JsonResume):
    """A run is looked for in all files, one by one. If one of them cannot be read, no run can be resumed."""

    def load(self, run_id: str) -> ResumePoint | None:
        for path in self.folder.home.glob("*.json"):
            self.parse(path.read_bytes())
        return super().load(run_id)
