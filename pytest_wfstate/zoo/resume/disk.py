"""Resume stores that a crash, a power cut or a full disk gets the better of."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.stores.file import FileResumeStore
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.zoo._json import JsonResume, NamesNeverSynced, RenamesFirst
from pytest_wfstate.zoo.base import animal


@animal("resume", "kill.delete", "power.delete", "errors.delete")
class DeletedInTwoSteps(JsonResume):
    """A delete empties the file and then removes it. Who dies in between leaves a run that cannot be read."""

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        self.check(run_id)
        with self.folder.exclusive() as held:
            if held.exists(self.name(run_id)):
                held.write(self.name(run_id), b"", durable=True)
        super().delete(run_id)


@animal("resume", "kill.save", "kill.delete", "power.save", "errors.save", "power.delete", "errors.delete")
class OverwritesInPlace(JsonResume):
    """The file is opened, emptied and written. Who dies in between leaves half a point, and the old one is gone."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@animal("resume", "kill.save", "power.save", "errors.save")
class RemovedThenRenamed(JsonResume):
    """The old file is removed before the new one takes its name, as some systems want it.

    Who dies in between leaves a run without a point.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.unlink(name)
        super().write(held, name, data)


@animal("resume", "power.save", "power.delete")
class NeverSynced(FileResumeStore):
    """Files are written and renamed, and nothing is fsynced.

    A power cut takes what was acknowledged, or leaves files of zeros.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durability="process")


@animal("resume", "power.save", "errors.save", "power.delete", "errors.delete")
class FolderNeverSynced(JsonResume):
    """The file is fsynced, its folder is not. After a power cut the new name is not there, and the old one is."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.folder = NamesNeverSynced(home, "power")


@animal("resume", "power.save", "errors.save", "power.delete", "errors.delete")
class RenamedThenSynced(RenamesFirst, JsonResume):
    """The file is renamed first, and fsynced in its new place.

    A power cut in between leaves the new name with nothing in it.
    """


@animal("resume", "errors.save", "errors.delete")
class SwallowsErrors(JsonResume):
    """An error of the disk is passed over: a point is not worth a failed run.

    On a full disk everything is acknowledged, and nothing is kept.
    """

    def save(self, point: ResumePoint) -> None:
        with contextlib.suppress(OSError):
            super().save(point)

    def delete(self, run_id: str) -> None:  # type: ignore[override]
        with contextlib.suppress(OSError):
            super().delete(run_id)
