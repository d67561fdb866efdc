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
from pytest_wfstate.stores.file.effects import _Mark
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.stores.file.journal import _line
from pytest_wfstate.zoo.base import animal
from pytest_wfstate.zoo.json_stores import JsonEffects


@animal(
    "effects",
    "mark.idempotent mark.idempotent-after-restart mark.idempotent-elsewhere mark.idempotent-saved mark.long-log",
    "mark.again-keeps-time mark.too-many",
)
class RetryCountsTwice(JsonEffects):
    """A mark adds to the log and to the step index without a look at what is done.

    A mark that is sent again after a timeout is counted twice.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.completed_tool_ids.discard(effect.tool_use_id)
        super().mark(checkpoint, effect)


@animal("effects", "mark.sets-time mark.again-keeps-time")
class TimeOfTheEffect(JsonEffects):
    """A mark takes its time from the effect, whose clock is that of another machine.

    The task looks older than it is.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.mark(effect, at=effect.completed_at)


@animal(
    "effects",
    "mark.adds mark.in-order mark.survives-restart mark.idempotent mark.idempotent-after-restart",
    "mark.idempotent-elsewhere mark.counts-on mark.keeps-agent mark.seen-at-once mark.not-lost mark.after-save",
    "mark.others mark.long-log mark.values mark.any-id mark.ids-differ save.after-marks delete.others",
    "mark.sets-time mark.again-keeps-time mark.too-many",
)
class NewestFirst(JsonEffects):
    """A mark puts its effect at the head of the log, where a page shows it first.

    Who undoes the log from its end begins with the oldest effect.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        is_done = checkpoint.is_completed(effect.tool_use_id)
        super().mark(checkpoint, effect)
        if not is_done:
            checkpoint.side_effects_log.insert(0, checkpoint.side_effects_log.pop())


@animal("effects", "mark.long-log")
class LogIsCapped(JsonEffects):
    """The log keeps its last hundred effects, for nobody expected more. A long task cannot undo how it began."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        del checkpoint.side_effects_log[:-100]


@animal("effects", "mark.counts-on mark.too-many")
class StepIsLengthOfLog(JsonEffects):
    """The step index is set to the length of the log. A task whose steps do not all have effects goes back in time."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        checkpoint.step_index = len(checkpoint.side_effects_log)


@animal(
    "effects",
    "mark.creates mark.in-order mark.survives-restart mark.idempotent mark.idempotent-elsewhere mark.seen-at-once",
    "mark.after-delete mark.long-log mark.values mark.any-id mark.ids-differ delete.seen-at-once aliasing.marked",
    "mark.sets-time race.mark-delete",
)
class AgentHasNoName(JsonEffects):
    """A checkpoint that a mark makes has no agent, where "unknown" was agreed on. Nobody finds it by that name."""

    def blank(self, task_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.new(task_id, "")


@animal("effects", "mark.wrong-effect")
class AnyEffectWillDo(JsonEffects):
    """The effect is not compared with the id that is marked.

    That of another call is logged, and nobody knows what this one did.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("tool use id", tool_use_id)
        super().mark_step_complete(task_id, tool_use_id, effect.model_copy(update={"tool_use_id": tool_use_id}))


@animal("effects", "mark.ids-differ")
class ToolIdsFolded(JsonEffects):
    """Tool calls are compared without regard to case and blanks. Of `run` and `Run` the second is never done."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if effect.tool_use_id.strip().casefold() not in {one.casefold() for one in checkpoint.completed_tool_ids}:
            super().mark(checkpoint, effect)


@animal("effects", "mark.survives-restart mark.others mark.sets-time")
class DoneAnywhereIsDone(JsonEffects):
    """A tool call counts as done if any task has marked its id, to be sure.

    Two tasks that number their calls from 1 keep each other from working.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if not any(f'"{effect.tool_use_id}"' in path.read_text() for path in self.folder.home.glob("*.json")):
            super().mark(checkpoint, effect)


@animal(
    "effects",
    "mark.not-lost mark.after-save race.save-mark race.mark-mark race.mark-delete",
)
class StaleReadModifyWrite(JsonEffects):
    """A handle marks on the checkpoint that it last had in its hands, and writes that.

    What others marked, saved or deleted meanwhile is undone.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: dict[str, WorkflowCheckpoint] = {}

    def store(self, held: LockedFolder, checkpoint: WorkflowCheckpoint) -> None:
        super().store(held, checkpoint)
        self._last[checkpoint.task_id] = checkpoint

    def task(self, task_id: str) -> WorkflowCheckpoint | None:
        return self._last.get(task_id) or super().task(task_id)

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self._last.pop(task_id, None)
        return super().load_checkpoint(task_id)

    def drop(self, *ids: str) -> None:
        super().drop(*ids)
        self._last.pop(ids[0], None)


@animal(
    "effects",
    "kill.mark kill.delete power.mark errors.mark power.delete errors.delete race.save-mark race.mark-mark",
    "race.mark-delete race.load",
)
class IdFirstEffectLater(JsonEffects):
    """A mark writes the id, and then the effect, in two steps.

    After a crash between them the call counts as done, and nobody knows what it did.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        effect = check_effect(tool_use_id, effect)
        checkpoint = self.load_checkpoint(task_id) or self.blank(task_id)
        before = checkpoint.model_copy(deep=True)
        self.mark(checkpoint, effect)
        before.completed_tool_ids.add(tool_use_id)
        self.save_checkpoint(before)
        self.save_checkpoint(checkpoint)


@animal("effects", "power.mark errors.mark")
class AppendsToATornLine(FileEffectStore):
    """A mark is a line at the end of the file, whatever is there.

    After a crash in the middle of a line the next mark is written behind its torn half, and the file can be read no
    more.
    """

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        with self._tasks.edit(task_id) as edit:
            change = _Mark(effect=effect, at=seconds(now()))
            if edit.document.is_completed(tool_use_id):
                return
            if edit.entry is None or not edit.entry.head:
                edit.apply(change)
                return
            edit.entry = None  # so that the file is read anew
            edit.document.apply(change.to_json())  # so that what cannot be counted is refused
            with open(self._folder.path(edit._name), "ab", buffering=0) as file:
                file.write(_line(change.to_json().encode()))
                os.fsync(file)


@animal("effects", "aliasing.marked")
class KeepsTheCallersEffect(JsonEffects):
    """A handle keeps the effects that it marked to save a look at the disk, and not copies of them.

    The caller uses the object again, and the log changes.
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


@animal("effects", "save.after-marks corrupt.heals")
class OlderIsIgnored(JsonEffects):
    """A checkpoint with a lower step index than the one that is there is taken for a late write, and dropped.

    A task cannot be set back.
    """

    def put(self, record: WorkflowCheckpoint) -> None:
        before = self.kept(record)
        if before is None or before.step_index <= record.step_index:
            super().put(record)


@animal("effects", "values.falsy mark.keeps-agent mark.values")
class FalsyIsMissing(JsonEffects):
    """Defaults are filled in with `or`. An agent without a name becomes "unknown", and an empty target none."""

    def made(self, kind: Any, fields: dict[str, Any]) -> Any:
        checkpoint = super().made(kind, fields)
        checkpoint.agent_id = checkpoint.agent_id or "unknown"
        for effect in checkpoint.side_effects_log:
            effect.target = effect.target or None
        return checkpoint
