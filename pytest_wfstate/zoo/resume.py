"""Resume stores that do not keep a point as it was saved."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonResume


@known_bad("resume", "save.shorter save.elsewhere")
class NeverTruncates(JsonResume):
    """A file is overwritten from its start, but never truncated.

    A short point is followed by the end of a longer one and cannot be read.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        before = self.folder.read(name) or b""
        super().write(held, name, data + before[len(data) :])


@known_bad("resume", "race.save-save")
class StagesInPlace(JsonResume):
    """A point is staged in a file that all workers share, overwritten in place, and then published as a whole.

    Of two concurrent saves, the shorter one cuts off the end of the longer one.
    """

    def put(self, record: ResumePoint) -> None:
        self.check(record.run_id)
        os.makedirs(self.folder.home, exist_ok=True)
        name = self.name(record.run_id)
        fd = os.open(self.folder.path(f"{name}.staged"), os.O_RDWR | os.O_CREAT, 0o600)
        with open(fd, "r+b") as staged:
            staged.write(record.to_json().encode())
            staged.truncate()
            staged.seek(0)
            with self.folder.exclusive() as held:
                self.write(held, name, staged.read())


@known_bad("resume", "values.falsy save.any-json save.exact-numbers")
class ScopesAreDictionaries(JsonResume):
    """A scope that is not a dictionary is refused, because those of the first workflows all were.

    A run whose scope is a list cannot save where to resume.
    """

    def put(self, record: ResumePoint) -> None:
        if not isinstance(record.scope_snapshot, dict):
            raise ValueError("a scope must be a dictionary")
        super().put(record)


@known_bad("resume", "save.elsewhere")
class SkipsEqualSaves(JsonResume):
    """A handle skips a save that equals the last one it made. If another worker saved in between, that save stays."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: dict[str, str] = {}

    def put(self, record: ResumePoint) -> None:
        if self._last.get(record.run_id) != record.to_json():
            super().put(record)
            self._last[record.run_id] = record.to_json()

    def delete(self, run_id: str) -> None:
        super().delete(run_id)
        self._last.pop(run_id, None)


@known_bad("resume", "load.before-folder")
class FolderWanted(JsonResume):
    """Loading a run first lists the folder.

    Before the first save there is no folder, and a new run fails with an error about a path its author never chose.
    """

    def load(self, run_id: str) -> ResumePoint | None:
        os.listdir(self.folder.home)
        return super().load(run_id)
