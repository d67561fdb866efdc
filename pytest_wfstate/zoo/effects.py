"""Effect stores that count a tool call wrongly: twice, not at all, or at the wrong time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.clock import now, seconds
from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.file import FileEffectStore
from pytest_wfstate.stores.file.effects import MarkChange
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.stores.file.lines import line_of
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonEffects


@known_bad(
    "effects",
    "mark.idempotent mark.idempotent-after-restart mark.idempotent-elsewhere mark.idempotent-saved mark.long-log",
    "mark.again-keeps-time mark.too-many",
)
class RetryCountsTwice(JsonEffects):
    """A mark adds to the log and the step index without checking what is already done.

    A mark that is retried after a timeout counts twice.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.completed_tool_ids.discard(effect.tool_use_id)
        super().mark(checkpoint, effect)


@known_bad("effects", "mark.sets-time mark.again-keeps-time")
class TimeOfTheEffect(JsonEffects):
    """A mark takes its time from the effect, which another machine's clock stamped. The task looks older than it is."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.mark(effect, at=effect.completed_at)


@known_bad(
    "effects",
    "mark.adds mark.in-order mark.survives-restart mark.idempotent mark.idempotent-after-restart",
    "mark.idempotent-elsewhere mark.counts-on mark.keeps-agent mark.seen-at-once mark.not-lost mark.after-save",
    "mark.others mark.long-log mark.values mark.any-id mark.ids-differ save.after-marks delete.others",
    "mark.sets-time mark.again-keeps-time mark.too-many",
)
class NewestFirst(JsonEffects):
    """A mark puts its effect at the head of the log, where a page shows it first.

    Code that undoes the log from its end starts with the oldest effect.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        is_done = checkpoint.is_completed(effect.tool_use_id)
        super().mark(checkpoint, effect)
        if not is_done:
            checkpoint.side_effects_log.insert(0, checkpoint.side_effects_log.pop())


@known_bad("effects", "mark.long-log")
class LogIsCapped(JsonEffects):
    """The log keeps only its last hundred effects. A long task cannot undo its first steps."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        del checkpoint.side_effects_log[:-100]


@known_bad("effects", "mark.counts-on mark.too-many")
class StepIsLengthOfLog(JsonEffects):
    """The step index is set to the length of the log. A task with steps that have no effects goes back in time."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        checkpoint.step_index = len(checkpoint.side_effects_log)


@known_bad(
    "effects",
    "mark.creates mark.in-order mark.survives-restart mark.idempotent mark.idempotent-elsewhere mark.seen-at-once",
    "mark.after-delete mark.long-log mark.values mark.any-id mark.ids-differ delete.seen-at-once aliasing.marked",
    "mark.sets-time",
)
class AgentHasNoName(JsonEffects):
    """A checkpoint created by a mark has an empty agent instead of "unknown". A search for that name misses it."""

    def blank(self, task_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.new(task_id, "")


@known_bad("effects", "mark.wrong-effect")
class AnyEffectWillDo(JsonEffects):
    """The effect is not compared with the id being marked.

    The effect of another call is logged, and what this call did is not recorded.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("tool use id", tool_use_id)
        super().mark_step_complete(task_id, tool_use_id, effect.model_copy(update={"tool_use_id": tool_use_id}))


@known_bad("effects", "mark.ids-differ")
class ToolIdsFolded(JsonEffects):
    """Tool call ids are compared without regard to case or surrounding blanks.

    Of `run` and `Run`, the second is never recorded.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if effect.tool_use_id.strip().casefold() not in {done.casefold() for done in checkpoint.completed_tool_ids}:
            super().mark(checkpoint, effect)


@known_bad("effects", "mark.survives-restart mark.others mark.sets-time")
class DoneAnywhereIsDone(JsonEffects):
    """A tool call counts as done if any task has marked its id.

    Two tasks that number their calls from 1 keep each other from working.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if not any(f'"{effect.tool_use_id}"' in path.read_text() for path in self.folder.home.glob("*.json")):
            super().mark(checkpoint, effect)


@known_bad("effects", "mark.not-lost mark.after-save race.save-mark race.mark-mark race.mark-delete")
class StaleReadModifyWrite(JsonEffects):
    """A mark starts from the checkpoint that this handle last wrote, without reading it again.

    Whatever other handles marked, saved or deleted since then is undone.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: dict[str, WorkflowCheckpoint] = {}

    def write_checkpoint(self, held: LockedFolder, checkpoint: WorkflowCheckpoint) -> None:
        super().write_checkpoint(held, checkpoint)
        self._last[checkpoint.task_id] = checkpoint

    def task(self, task_id: str) -> WorkflowCheckpoint | None:
        return self._last.get(task_id) or super().task(task_id)

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self._last.pop(task_id, None)
        return super().load_checkpoint(task_id)

    def drop(self, *ids: str) -> None:
        super().drop(*ids)
        self._last.pop(ids[0], None)


@known_bad(
    "effects",
    "kill.mark kill.delete power.mark errors.mark power.delete errors.delete race.save-mark race.mark-mark",
    "race.mark-delete race.load",
)
class IdFirstEffectLater(JsonEffects):
    """A mark writes the id first and the effect second.

    After a crash between the two, the call counts as done, but its effect is not recorded.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        effect = check_effect(tool_use_id, effect)
        checkpoint = self.load_checkpoint(task_id) or self.blank(task_id)
        before = checkpoint.model_copy(deep=True)
        self.mark(checkpoint, effect)
        before.completed_tool_ids.add(tool_use_id)
        self.save_checkpoint(before)
        self.save_checkpoint(checkpoint)


@known_bad("effects", "power.mark errors.mark")
class AppendsToATornLine(FileEffectStore):
    """A mark appends a line to the file without checking how the file ends.

    After a torn write, the next mark is appended to half a line, and the file becomes unreadable.
    """

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        with self._tasks.edit(task_id) as edit:
            change = MarkChange(effect=effect, at=seconds(now()))
            if edit.document.is_completed(tool_use_id):
                return
            if edit.entry is None or not edit.entry.head:
                edit.apply(change)
                return
            edit.entry = None  # so that the file is read again
            edit.document.apply(change.to_json())  # so that an overflow is refused
            with open(self._folder.path(edit.name), "ab", buffering=0) as file:
                file.write(line_of(change.to_json().encode()))
                os.fsync(file)


@known_bad("effects", "aliasing.marked")
class KeepsTheCallersEffect(JsonEffects):
    """A handle caches the effects that it marked, but not copies of them.

    When the caller reuses the object, the log changes.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._kept: dict[bytes | None, SideEffectRecord] = {}

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        before = self.folder.read(self.name(task_id)) if task_id else None
        super().mark_step_complete(task_id, tool_use_id, effect)
        after = self.folder.read(self.name(task_id))
        if after != before:
            self._kept[after] = effect

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        checkpoint = super().load_checkpoint(task_id)
        kept = self._kept.get(self.folder.read(self.name(task_id)))
        if checkpoint and kept:
            checkpoint.side_effects_log[-1] = kept
        return checkpoint


@known_bad("effects", "save.after-marks corrupt.heals")
class OlderIsIgnored(JsonEffects):
    """A checkpoint with a lower step index than the stored one is dropped as a late write.

    A task cannot be set back to an earlier step.
    """

    def put(self, record: WorkflowCheckpoint) -> None:
        before = self.stored(record)
        if before is None or before.step_index <= record.step_index:
            super().put(record)


@known_bad("effects", "values.falsy mark.keeps-agent mark.values")
class FalsyIsMissing(JsonEffects):
    """Defaults are filled in with `or`. An empty agent becomes "unknown", and an empty target becomes None."""

    def decode(self, kind: Any, fields: dict[str, Any]) -> Any:
        checkpoint = super().decode(kind, fields)
        checkpoint.agent_id = checkpoint.agent_id or "unknown"
        for effect in checkpoint.side_effects_log:
            effect.target = effect.target or None
        return checkpoint


@known_bad("effects", "race.save-mark race.mark-mark race.mark-delete")
class ReadsModifiesWrites(JsonEffects):
    """A mark loads a checkpoint, adds the effect and saves it without a lock. Of two concurrent marks, one is lost."""

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        effect = check_effect(tool_use_id, effect)
        checkpoint = self.load_checkpoint(task_id) or self.blank(task_id)
        self.mark(checkpoint, effect)
        self.put(checkpoint)
