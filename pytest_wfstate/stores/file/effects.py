"""The effects contract, in a folder: one journal per task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self, Unpack

from pytest_wfstate.contracts.clock import now, seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import I64, Record
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.file.base import FileSettings, FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.file.journal import Journal
from pytest_wfstate.stores.file.seeds import SeedNames, alphanumeric_stems


class MarkChange(Record):
    """A change: one more effect, and when it was marked."""

    effect: SideEffectRecord
    at: I64


class _TaskDocument(WorkflowCheckpoint):
    """A journal's document: the checkpoint of one task."""

    @classmethod
    def blank(cls, *ids: str) -> Self:
        (task_id,) = ids
        return cls.new(task_id, "unknown")

    def ids(self) -> tuple[str, ...]:
        return (self.task_id,)

    def apply(self, change: bytes | str) -> None:
        mark = MarkChange.model_validate_json(change)
        self.mark(mark.effect, at=mark.at)

    def size(self) -> int:
        return len(self.side_effects_log)


class FileEffectStore(FileStore, EffectStore):
    """Keeps the checkpoint of task `task-1` in `task-1.json`."""

    contract = "effects"
    seeds = SeedNames(alphanumeric_stems, ".json", has_shared_names=True)

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._tasks = Journal(self._folder, ".json", _TaskDocument, accept_bare=True)

    @classmethod
    def at_default_path(cls, durability: Durability = "power", **settings: Unpack[FileSettings]) -> Self:
        """Open the store in the user's home, at `~/.wfstate/effects`."""
        return cls(Path.home() / ".wfstate" / "effects", durability, **settings)

    def close(self) -> None:
        super().close()
        self._tasks.forget()

    @threaded
    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        check_id("task id", checkpoint.task_id)
        self._tasks.write(_TaskDocument.model_validate(dict(checkpoint)))

    @threaded
    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        with self._tasks.view(check_id("task id", task_id)) as task:
            return None if task is None else WorkflowCheckpoint.checked(task)

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        with self._tasks.edit(task_id) as edit:
            if not edit.document.is_completed(tool_use_id):
                edit.apply(MarkChange(effect=effect, at=seconds(now())))

    @threaded
    def delete_checkpoint(self, task_id: str) -> None:
        self._tasks.delete(check_id("task id", task_id))
