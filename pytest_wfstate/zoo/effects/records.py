"""Effect stores that change, mix up or hide what they are given to keep: values, ids, damaged files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.clock import now, seconds
from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint
from pytest_wfstate.errors import CorruptRecord, NotFound
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.stores.file._names import stem
from pytest_wfstate.zoo._json import JsonEffects
from pytest_wfstate.zoo.base import animal


@animal(
    "effects",
    "load.missing",
    "save.load",
    "mark.creates",
    "delete.forgets",
    "delete.idempotent",
    "ids.never-collide",
    "random.calls",
    "mark.wrong-effect",
    "save.after-delete",
    "delete.seen-at-once",
    "delete.others",
    "corrupt.heals",
    "save.unsound",
)
class MissingIsBlank(JsonEffects):
    """A task without a checkpoint gets an empty one when it is loaded.

    Nobody can tell a new task from one that lost its state.
    """

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        return super().load_checkpoint(task_id) or self.blank(task_id)


@animal(
    "effects",
    "save.load",
    "save.replaces",
    "save.survives-restart",
    "delete.forgets",
    "handles.see-each-other",
    "values.falsy",
    "values.unicode",
    "values.large",
    "ids.any-text",
    "ids.never-collide",
    "ids.refused",
    "aliasing.saved",
    "aliasing.loaded",
    "corrupt.stays-local",
    "random.calls",
    "mark.idempotent-saved",
    "mark.others",
    "mark.wrong-effect",
    "mark.bad-id",
    "save.after-marks",
    "save.after-delete",
    "save.bad-id",
    "delete.seen-at-once",
    "delete.others",
    "corrupt.heals",
    "mark.again-keeps-time",
    "save.unsound",
)
class SaveSetsTheTime(JsonEffects):
    """Saving stamps the checkpoint with the time. What is loaded is not what was saved, and a copied task looks new."""

    def put(self, held: Held, checkpoint: WorkflowCheckpoint) -> None:
        super().put(held, checkpoint.model_copy(update={"updated_at": seconds(now())}))


@animal("effects", "random.calls", "mark.after-save", "save.after-marks", "corrupt.heals")
class SaveAddsToWhatIsDone(JsonEffects):
    """Saving adds the ids to those that are done already.

    A task that was reset on purpose skips what it is to do again.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        before = self.load_checkpoint(checkpoint.task_id)
        done = before.completed_tool_ids if before else set()
        super().save_checkpoint(
            checkpoint.model_copy(update={"completed_tool_ids": checkpoint.completed_tool_ids | done})
        )


@animal("effects", "random.calls", "save.after-marks", "corrupt.heals")
class OlderIsIgnored(JsonEffects):
    """A checkpoint with a lower step index than the one that is there is taken for a late write, and dropped.

    A task cannot be set back.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        before = self.load_checkpoint(checkpoint.task_id)
        if before is None or before.step_index <= checkpoint.step_index:
            super().save_checkpoint(checkpoint)


@animal(
    "effects",
    "save.replaces",
    "save.survives-restart",
    "handles.see-each-other",
    "random.calls",
    "mark.after-save",
    "save.after-marks",
    "corrupt.heals",
    "save.unsound",
    "errors.save",
)
class SaveKeepsTheFirst(JsonEffects):
    """A checkpoint is written only if there is none, so that two starts do not get in each other's way.

    No later one is ever kept.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        if self.load_checkpoint(checkpoint.task_id) is None:
            super().save_checkpoint(checkpoint)


@animal("effects", "values.falsy", "mark.keeps-agent", "mark.values")
class FalsyIsMissing(JsonEffects):
    """Defaults are filled in with `or`. An agent without a name becomes "unknown", and an empty target none."""

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        checkpoint = super().load_checkpoint(task_id)
        if checkpoint:
            checkpoint.agent_id = checkpoint.agent_id or "unknown"
            for effect in checkpoint.side_effects_log:
                effect.target = effect.target or None
        return checkpoint


@animal(
    "effects", "values.unicode", "ids.any-text", "ids.never-collide", "mark.values", "mark.any-id", "mark.ids-differ"
)
class AsciiOnly(JsonEffects):
    """Text is written as ASCII, and what is not is left out without a word. 送金 is gone."""

    def put(self, held: Held, checkpoint: WorkflowCheckpoint) -> None:
        self.write(held, self.name(checkpoint.task_id), checkpoint.to_json().encode("ascii", errors="ignore"))


@animal("effects", "values.large", "mark.values")
class OneWriteOf64K(JsonEffects):
    """A file is written with one call that takes 64 KiB at most. A longer checkpoint is cut, and cannot be read."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data[: 64 * 1024])


@animal("effects", "save.unsound")
class SavesUnchecked(JsonEffects):
    """A checkpoint is written as it is.

    One that the caller has spoilt is taken, in the place of a good one, and cannot be read.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        self.check(checkpoint.task_id)
        with self.folder.exclusive() as held:
            self.write(held, self.name(checkpoint.task_id), checkpoint.model_dump_json(warnings=False).encode())


@animal("effects", "aliasing.saved")
class KeepsTheCallersObject(JsonEffects):
    """A handle keeps what it saved to save a look at the disk: the caller's own object.

    What the caller adds to it afterwards is loaded, and was never stored.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._kept: dict[bytes, WorkflowCheckpoint] = {}

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        super().save_checkpoint(checkpoint)
        self._kept[self.folder.read(self.name(checkpoint.task_id)) or b""] = checkpoint

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        found = super().load_checkpoint(task_id)
        kept = self._kept.get(self.folder.read(self.name(task_id)) or b"") if found else None
        return found if kept is None else kept.model_copy(deep=True)


@animal("effects", "aliasing.loaded")
class HandsOutItsCache(JsonEffects):
    """A handle parses a file once, and gives everybody the same object.

    What one caller adds to it, the next takes for stored.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._parsed: dict[bytes, WorkflowCheckpoint | None] = {}

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self.check(task_id)
        data = self.folder.read(self.name(task_id)) or b""
        if data not in self._parsed:
            self._parsed[data] = super().load_checkpoint(task_id)
        return self._parsed[data]


@animal(
    "effects", "handles.see-each-other", "random.calls", "mark.seen-at-once", "delete.seen-at-once", "mark.sets-time"
)
class LoadsOnce(JsonEffects):
    """A handle keeps what it loaded until it changes the task itself.

    It never learns what others mark, save or delete.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._seen: dict[str, WorkflowCheckpoint | None] = {}

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        if task_id not in self._seen:
            self._seen[task_id] = super().load_checkpoint(task_id)
        seen = self._seen[task_id]
        return seen.model_copy(deep=True) if seen else None

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        super().save_checkpoint(checkpoint)
        self._seen.pop(checkpoint.task_id, None)

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        super().mark_step_complete(task_id, tool_use_id, effect)
        self._seen.pop(task_id, None)

    def delete_checkpoint(self, task_id: str) -> None:
        super().delete_checkpoint(task_id)
        self._seen.pop(task_id, None)


@animal(
    "effects",
    "save.survives-restart",
    "mark.in-order",
    "mark.survives-restart",
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
    "mark.idempotent-after-restart",
    "mark.idempotent-elsewhere",
    "mark.idempotent-saved",
    "mark.keeps-agent",
    "mark.seen-at-once",
    "mark.not-lost",
    "mark.after-save",
    "mark.after-delete",
    "mark.others",
    "mark.long-log",
    "mark.values",
    "mark.any-id",
    "mark.ids-differ",
    "mark.wrong-effect",
    "mark.bad-id",
    "save.after-marks",
    "save.after-delete",
    "delete.seen-at-once",
    "delete.others",
    "aliasing.marked",
    "corrupt.heals",
    "mark.sets-time",
    "mark.again-keeps-time",
    "mark.too-many",
    "save.unsound",
)
class IndexInMemory(JsonEffects):
    """A handle knows its tasks by an index that it never writes.

    After a restart the files are there, and no task is.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._tasks: set[str] = set()

    def put(self, held: Held, checkpoint: WorkflowCheckpoint) -> None:
        super().put(held, checkpoint)
        self._tasks.add(checkpoint.task_id)

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        found = super().load_checkpoint(task_id)
        return found if task_id in self._tasks else None


@animal("effects", "ids.any-text", "ids.never-collide")
class SanitisedIds(JsonEffects):
    """Whatever is not a letter, a digit, `-` or `_` becomes `_` in the file's name.

    The tasks `a/b` and `a_b` share one checkpoint, and the last to save has it.
    """

    def name(self, *ids: str) -> str:
        return re.sub(r"[^\w-]", "_", ids[0]) + ".json"


@animal("effects", "ids.never-collide")
class CaseFoldedIds(JsonEffects):
    """File names are in lower case, to be safe on every disk. `run` and `Run` are one task."""

    def name(self, *ids: str) -> str:
        return super().name(ids[0].lower())


@animal("effects", "ids.never-collide")
class IdsCutAt64(JsonEffects):
    """The id is cut to 64 characters to make a file's name. Tasks that differ in the 65th are one."""

    def name(self, *ids: str) -> str:
        return super().name(ids[0][:64])


@animal("effects", "ids.any-text", "ids.never-collide", "ids.stay-inside")
class IdsAsPaths(JsonEffects):
    """The id is put into the path as it is.

    `../outside` is a file in the folder above, and `a/b` one in a folder that is not there.
    """

    def name(self, *ids: str) -> str:
        return f"{ids[0]}.json"


@animal("effects", "ids.refused", "mark.bad-id", "save.bad-id")
class TakesAnyId(JsonEffects):
    """Ids are not looked at. The task of which somebody forgot the id is kept with those of everybody who did."""

    def check(self, *ids: str) -> None:
        pass


@animal("effects", "delete.others")
class DeletesAllThatBeginAlike(JsonEffects):
    """A delete takes along every file that begins with the id. With `run-1` goes `run-10`."""

    def delete(self, *ids: str) -> None:
        with self.folder.exclusive() as held:
            held.unlink(*(name for name in held.names() if name.startswith(stem(*ids))))
            held.sync()


@animal("effects", "delete.idempotent", "random.calls", "kill.delete", "power.delete", "errors.delete")
class DeleteWantsIt(JsonEffects):
    """To delete a task that is not there is an error. Who cleans up after a crash, and is not the first, fails."""

    def delete_checkpoint(self, task_id: str) -> None:
        if not self.folder.path(self.name(task_id)).exists():
            raise NotFound(f"there is no task {task_id!r}")
        super().delete_checkpoint(task_id)


@animal("effects", "random.calls", "mark.after-delete", "save.after-delete", "delete.seen-at-once")
class DeletedForGood(JsonEffects):
    """A delete leaves a tombstone, lest a late mark bring the task back. Nobody can ever use the id again."""

    def delete(self, *ids: str) -> None:
        super().delete(*ids)
        with self.folder.exclusive() as held:
            held.replace(stem(*ids) + ".gone", b"")

    def put(self, held: Held, checkpoint: WorkflowCheckpoint) -> None:
        if not held.exists(stem(checkpoint.task_id) + ".gone"):
            super().put(held, checkpoint)


@animal("effects", "delete.forgets", "random.calls", "mark.after-delete")
class BackupComesBack(JsonEffects):
    """The checkpoint before the last is kept as a backup, and loaded if there is no other.

    A delete leaves it: the task is back, one step younger.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        before = self.folder.read(name)
        if before is not None:
            held.replace(name + ".bak", before)
        super().write(held, name, data)

    def read(self, *ids: str) -> dict[str, Any]:
        backup = self.folder.read(self.name(*ids) + ".bak")
        return super().read(*ids) or (self.parse(backup) if backup else {})


@animal("effects", "corrupt.is-loud", "corrupt.not-reset")
class DamagedIsMissing(JsonEffects):
    """A file that cannot be read is taken for no checkpoint. The task begins again, and does everything twice."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@animal("effects", "corrupt.heals")
class LooksBeforeItSaves(JsonEffects):
    """Before it saves or deletes, the store loads what is there, to log it.

    A file that cannot be read can neither be replaced nor removed.
    """

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        self.load_checkpoint(checkpoint.task_id)
        super().save_checkpoint(checkpoint)

    def delete_checkpoint(self, task_id: str) -> None:
        self.load_checkpoint(task_id)
        super().delete_checkpoint(task_id)


@animal("effects", "corrupt.stays-local")
class OneBadFileBlindsAll(JsonEffects):
    """A task is looked for in all files, one by one. If one of them cannot be read, no task can be loaded."""

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        for path in self.folder.home.glob("*.json"):
            self.parse(path.read_bytes())
        return super().load_checkpoint(task_id)
