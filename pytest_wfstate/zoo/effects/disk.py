"""Effect stores that a crash, a power cut or a full disk gets the better of."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint
from pytest_wfstate.stores.file import FileEffectStore
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.zoo._json import JsonEffects, NamesNeverSynced, RenamesFirst
from pytest_wfstate.zoo.base import animal


@animal(
    "effects",
    "kill.save",
    "kill.mark",
    "kill.delete",
    "power.save",
    "errors.save",
    "power.mark",
    "errors.mark",
    "power.delete",
    "errors.delete",
)
class OverwritesInPlace(JsonEffects):
    """The file is opened, emptied and written.

    Who dies in between leaves half a checkpoint, and the old one is gone.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@animal("effects", "power.save", "power.mark", "power.delete")
class NeverSynced(FileEffectStore):
    """Files are written and renamed, and nothing is fsynced.

    A power cut takes what was acknowledged, or leaves files of zeros.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durability="process")


@animal("effects", "power.save", "errors.save", "power.mark", "errors.mark", "power.delete", "errors.delete")
class FolderNeverSynced(JsonEffects):
    """The file is fsynced, its folder is not. After a power cut the new name is not there, and the old one is."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.folder = NamesNeverSynced(home, "power")


@animal("effects", "power.save", "errors.save", "power.mark", "errors.mark", "power.delete", "errors.delete")
class RenamedThenSynced(RenamesFirst, JsonEffects):
    """The file is renamed first, and fsynced in its new place.

    A power cut in between leaves the new name with nothing in it.
    """


@animal("effects", "kill.delete", "power.delete", "errors.delete")
class DeletedInTwoSteps(JsonEffects):
    """A delete empties the checkpoint and then removes it. Who dies in between leaves a task that has done nothing."""

    def delete_checkpoint(self, task_id: str) -> None:
        if self.folder.read(self.name(task_id)) is not None:
            self.save_checkpoint(self.blank(task_id))
        super().delete_checkpoint(task_id)


@animal("effects", "errors.save", "errors.mark", "errors.delete")
class SwallowsErrors(JsonEffects):
    """An error of the disk is passed over: a checkpoint is not worth a failed task.

    On a full disk everything is acknowledged, and nothing is kept.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        with contextlib.suppress(OSError):
            super().save_checkpoint(checkpoint)

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        with contextlib.suppress(OSError):
            super().mark_step_complete(task_id, tool_use_id, effect)

    def delete_checkpoint(self, task_id: str) -> None:
        with contextlib.suppress(OSError):
            super().delete_checkpoint(task_id)


@animal("effects", "errors.save", "errors.mark", "errors.delete")
class ShortWriteWillDo(JsonEffects):
    """What `write` returns is not looked at.

    A nearly full disk takes half of the file, and the other half is not missed.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        fd = os.open(held.path(name + ".tmp"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, data)
            self.folder.sync(fd)
        finally:
            os.close(fd)
        held.rename(name + ".tmp", name)
        held.sync()
