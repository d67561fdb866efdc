"""The effects contract, in memory."""

from __future__ import annotations

from pytest_wfstate.contracts.clock import Clock, now, seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.stores.memory.base import MemoryStore


class MemoryEffectStore(MemoryStore, EffectStore):
    """Keeps checkpoints in memory, as private copies that no caller ever holds."""

    def __init__(self, *, clock: Clock = now) -> None:
        super().__init__(clock=clock)
        self._checkpoints: dict[str, WorkflowCheckpoint] = {}

    async def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        check_id("task id", checkpoint.task_id)
        with self._lock:
            self._checkpoints[checkpoint.task_id] = checkpoint

    async def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        check_id("task id", task_id)
        with self._lock:
            checkpoint = self._checkpoints.get(task_id)
            return None if checkpoint is None else WorkflowCheckpoint.checked(checkpoint)

    async def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        with self._lock:
            checkpoint = self._checkpoints.get(task_id) or WorkflowCheckpoint.new(task_id, "unknown")
            checkpoint.mark(effect, at=seconds(self._clock()))
            self._checkpoints[task_id] = checkpoint

    async def delete_checkpoint(self, task_id: str) -> None:
        check_id("task id", task_id)
        with self._lock:
            self._checkpoints.pop(task_id, None)
