"""Resume stores that do not keep a point as it is."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import animal
from pytest_wfstate.zoo.json_stores import JsonResume


@animal("resume", "save.shorter save.elsewhere")
class NeverTruncates(JsonResume):
    """A file is written from its start, over what is there.

    A short point leaves the end of a long one behind it, and cannot be read.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        before = self.folder.read(name) or b""
        super().write(held, name, data + before[len(data) :])


@animal("resume", "values.falsy save.any-json save.exact-numbers")
class ScopesAreDictionaries(JsonResume):
    """A scope that is no dictionary is refused, since those of the first workflows all were.

    A run whose scope is a list has no point to resume at.
    """

    def put(self, record: ResumePoint) -> None:
        if not isinstance(record.scope_snapshot, dict):
            raise ValueError("a scope is a dictionary")
        super().put(record)


@animal("resume", "save.elsewhere")
class SkipsEqualSaves(JsonResume):
    """A handle does not write a point that equals the last one it wrote.

    If another worker wrote one in between, that one stays.
    """

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


@animal("resume", "load.before-folder")
class FolderWanted(JsonResume):
    """To load a run, the folder is listed.

    Before the first save there is none, and a new run fails with an error that names a folder nobody knows.
    """

    def load(self, run_id: str) -> ResumePoint | None:
        os.listdir(self.folder.home)
        return super().load(run_id)
