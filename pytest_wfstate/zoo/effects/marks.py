"""Effect stores that count a tool call wrongly: twice, not at all, or at the wrong time."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_wfstate.contracts.clock import now, seconds
from pytest_wfstate.contracts.effects import SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.file import FileEffectStore
from pytest_wfstate.stores.file._journal import _line
from pytest_wfstate.stores.file.effects import _Mark
from pytest_wfstate.zoo._json import JsonEffects
from pytest_wfstate.zoo.base import animal

_EVERY_LOG = (
    "mark.adds mark.in-order mark.survives-restart random.calls mark.idempotent "
    "mark.idempotent-after-restart mark.idempotent-elsewhere mark.counts-on mark.keeps-agent "
    "mark.seen-at-once mark.not-lost mark.after-save mark.others mark.long-log mark.values mark.any-id "
    "mark.ids-differ save.after-marks delete.others mark.sets-time mark.again-keeps-time mark.too-many"
)
"""What shows the order or the length of a log."""


@animal(
    "effects",
    "random.calls",
    "mark.idempotent",
    "mark.idempotent-after-restart",
    "mark.idempotent-elsewhere",
    "mark.idempotent-saved",
    "mark.long-log",
    "mark.again-keeps-time",
    "mark.too-many",
)
class RetryCountsTwice(JsonEffects):
    """A mark adds to the log and to the step index without a look at what is done.

    A mark that is sent again after a timeout is counted twice.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.completed_tool_ids.discard(effect.tool_use_id)
        super().mark(checkpoint, effect)


@animal("effects", "mark.idempotent-saved")
class DoneIfItIsInTheLog(JsonEffects):
    """What is done is looked up in the log.

    A tool call that was saved as done without an effect, because it had none, is done again.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if effect.tool_use_id not in {one.tool_use_id for one in checkpoint.side_effects_log}:
            checkpoint.completed_tool_ids.discard(effect.tool_use_id)
            super().mark(checkpoint, effect)


@animal("effects", "random.calls", "mark.idempotent-saved", "mark.again-keeps-time")
class RetryTouches(JsonEffects):
    """A mark that is repeated sets the time all the same. A task that is stuck in retries never looks stale."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        checkpoint.updated_at = seconds(now())


@animal("effects", "mark.sets-time", "mark.again-keeps-time")
class TimeOfTheEffect(JsonEffects):
    """A mark takes its time from the effect, whose clock is that of another machine.

    The task looks older than it is.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.mark(effect, at=effect.completed_at)


@animal("effects", "mark.sets-time")
class TimeIsRounded(JsonEffects):
    """Seconds are rounded, not cut. Half of all marks come from the future, and sort after those that follow them."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        checkpoint.mark(effect, at=round(now().timestamp()))


@animal("effects", _EVERY_LOG)
class LastEffectOnly(JsonEffects):
    """A mark puts its effect in the place of the log. What was done before cannot be undone any more."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        del checkpoint.side_effects_log[:-1]


@animal("effects", _EVERY_LOG)
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


@animal("effects", "mark.counts-on", "mark.too-many")
class StepIsLengthOfLog(JsonEffects):
    """The step index is set to the length of the log. A task whose steps do not all have effects goes back in time."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        super().mark(checkpoint, effect)
        checkpoint.step_index = len(checkpoint.side_effects_log)


@animal("effects", "mark.too-many")
class StepWrapsAround(JsonEffects):
    """The step index is a 32-bit number that starts again at 0 when it is full. The task seems to begin anew."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        step = checkpoint.step_index
        checkpoint.step_index = 0
        super().mark(checkpoint, effect)
        checkpoint.step_index = (step + checkpoint.step_index) % 2**32


@animal(
    "effects",
    "mark.creates",
    "mark.in-order",
    "mark.survives-restart",
    "random.calls",
    "mark.idempotent",
    "mark.idempotent-elsewhere",
    "mark.seen-at-once",
    "mark.after-delete",
    "mark.long-log",
    "mark.values",
    "mark.any-id",
    "mark.ids-differ",
    "delete.seen-at-once",
    "aliasing.marked",
    "mark.sets-time",
)
class AgentHasNoName(JsonEffects):
    """A checkpoint that a mark makes has no agent, where "unknown" was agreed on. Nobody finds it by that name."""

    def blank(self, task_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.new(task_id, "")


@animal("effects", "random.calls", "mark.wrong-effect")
class AnyEffectWillDo(JsonEffects):
    """The effect is not compared with the id that is marked.

    That of another call is logged, and nobody knows what this one did.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("tool use id", tool_use_id)
        super().mark_step_complete(task_id, tool_use_id, effect.model_copy(update={"tool_use_id": tool_use_id}))


@animal(
    "effects",
    "random.calls",
    "mark.wrong-effect",
    "kill.mark",
    "kill.delete",
    "power.mark",
    "errors.mark",
    "power.delete",
    "errors.delete",
)
class RefusesTooLate(JsonEffects):
    """A mark first makes the checkpoint, if there is none, and then looks at its arguments.

    What was refused has left an empty checkpoint behind.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        if self.load_checkpoint(task_id) is None:
            self.save_checkpoint(self.blank(task_id))
        super().mark_step_complete(task_id, tool_use_id, effect)


@animal("effects", "mark.ids-differ")
class ToolIdsFolded(JsonEffects):
    """Tool calls are compared without regard to case and blanks. Of `run` and `Run` the second is never done."""

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if effect.tool_use_id.strip().casefold() not in {one.casefold() for one in checkpoint.completed_tool_ids}:
            super().mark(checkpoint, effect)


@animal("effects", "mark.any-id", "mark.ids-differ")
class ToolIdsOf255(JsonEffects):
    """Tool ids have room for 255 characters, as in many a table.

    A longer one cannot be marked, and is done for ever.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if len(effect.tool_use_id) > 255:
            raise ValueError("the tool id is too long")
        super().mark(checkpoint, effect)


@animal("effects", "mark.survives-restart", "random.calls", "mark.others", "mark.sets-time")
class DoneAnywhereIsDone(JsonEffects):
    """A tool call counts as done if any task has marked its id, to be sure.

    Two tasks that number their calls from 1 keep each other from working.
    """

    def mark(self, checkpoint: WorkflowCheckpoint, effect: SideEffectRecord) -> None:
        if not any(f'"{effect.tool_use_id}"' in path.read_text() for path in self.folder.home.glob("*.json")):
            super().mark(checkpoint, effect)


@animal("effects", "random.calls", "mark.seen-at-once", "mark.not-lost", "mark.after-save", "mark.after-delete")
class StaleReadModifyWrite(JsonEffects):
    """A handle marks on the checkpoint that it last had in its hands, and writes that.

    What others marked, saved or deleted meanwhile is undone.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._last: dict[str, WorkflowCheckpoint] = {}

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        super().save_checkpoint(checkpoint)
        self._last[checkpoint.task_id] = checkpoint.model_copy(deep=True)

    def delete_checkpoint(self, task_id: str) -> None:
        super().delete_checkpoint(task_id)
        self._last.pop(task_id, None)

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        effect = check_effect(tool_use_id, effect)
        checkpoint = self._last.get(task_id) or self.load_checkpoint(task_id) or self.blank(task_id)
        checkpoint = checkpoint.model_copy(deep=True)
        self.mark(checkpoint, effect)
        self.save_checkpoint(checkpoint)


@animal(
    "effects",
    "mark.survives-restart",
    "random.calls",
    "mark.seen-at-once",
    "mark.not-lost",
    "mark.after-save",
    "delete.seen-at-once",
    "corrupt.not-reset",
    "mark.sets-time",
    "mark.again-keeps-time",
    "mark.too-many",
)
class MarksInBatches(JsonEffects):
    """Marks are written three at a time, and before the same handle looks.

    If the worker stops before that, what it did is done again.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._waiting: list[tuple[str, str, SideEffectRecord]] = []

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        self._waiting.append((task_id, tool_use_id, check_effect(tool_use_id, effect)))
        if len(self._waiting) >= 3:
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            super().mark_step_complete(*self._waiting.pop(0))

    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        self._flush()
        return super().load_checkpoint(task_id)

    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        self._flush()
        super().save_checkpoint(checkpoint)

    def delete_checkpoint(self, task_id: str) -> None:
        self._flush()
        super().delete_checkpoint(task_id)


@animal("effects", "kill.mark", "kill.delete", "power.mark", "errors.mark", "power.delete", "errors.delete")
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


@animal("effects", "power.mark", "errors.mark")
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


@animal("effects", "corrupt.not-reset")
class MarkStartsAnew(JsonEffects):
    """A mark on a checkpoint that cannot be read starts a new one, so that work goes on.

    All that was done before is done again.
    """

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        try:
            super().mark_step_complete(task_id, tool_use_id, effect)
        except CorruptRecord:
            self.delete_checkpoint(task_id)
            super().mark_step_complete(task_id, tool_use_id, effect)


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
