"""Effects: which tool calls of a task are done, so that a restart does not repeat them."""

from __future__ import annotations

from typing import Annotated, Protocol, Self, runtime_checkable

from pydantic import PlainSerializer

from pytest_wfstate.contracts.clock import now, seconds
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import I64, U32, Flag, Record, Text
from pytest_wfstate.errors import InvalidId

__all__ = ["EffectStore", "SideEffectRecord", "WorkflowCheckpoint"]


class SideEffectRecord(Record):
    """One thing that a tool call did to the outside world."""

    tool_use_id: Text
    tool_name: Text
    target: Text | None = None
    completed_at: I64
    reversible: Flag

    @classmethod
    def new(cls, tool_use_id: str, tool_name: str, target: str | None = None, *, reversible: bool) -> Self:
        """Return an effect that was completed just now."""
        return cls(
            tool_use_id=tool_use_id,
            tool_name=tool_name,
            target=target,
            completed_at=seconds(now()),
            reversible=reversible,
        )


class WorkflowCheckpoint(Record):
    """How far a task has got: the tool calls that are done, and what each of them did."""

    task_id: Text
    agent_id: Text
    step_index: U32
    completed_tool_ids: Annotated[set[Text], PlainSerializer(sorted)]
    side_effects_log: list[SideEffectRecord]
    updated_at: I64

    @classmethod
    def new(cls, task_id: str, agent_id: str) -> Self:
        """Return a checkpoint of a task that has done nothing yet."""
        return cls(
            task_id=task_id,
            agent_id=agent_id,
            step_index=0,
            completed_tool_ids=set(),
            side_effects_log=[],
            updated_at=seconds(now()),
        )

    def is_completed(self, tool_use_id: str) -> bool:
        """Whether this tool call is done and must be skipped."""
        return tool_use_id in self.completed_tool_ids

    def mark(self, effect: SideEffectRecord, at: int) -> None:
        """Record `effect` as done at second `at`. An effect recorded before changes nothing."""
        if self.is_completed(effect.tool_use_id):
            return
        self.step_index += 1  # first, because it may be refused
        self.completed_tool_ids.add(effect.tool_use_id)
        self.side_effects_log.append(effect)
        self.updated_at = at


def check_effect(tool_use_id: str, effect: SideEffectRecord) -> SideEffectRecord:
    """Return a copy of `effect`, which must belong to the tool call `tool_use_id`.

    Raises:
        InvalidId: it belongs to another tool call, or the id is invalid.

    """
    effect = SideEffectRecord.checked(effect)
    if effect.tool_use_id != check_id("tool use id", tool_use_id):
        raise InvalidId(
            f"the effect belongs to tool call {effect.tool_use_id!r}, but {tool_use_id!r} is being marked. "
            "Pass the effect of the tool call that you mark."
        )
    return effect


@runtime_checkable
class EffectStore(Protocol):
    """Keeps one `WorkflowCheckpoint` per task."""

    async def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        """Store `checkpoint`, replacing any that its task had."""

    async def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        """Return the task's checkpoint, or None if it has none."""

    async def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        """Add one effect atomically.

        A task without a checkpoint gets one, with agent "unknown". Marking the same id again changes nothing.

        Raises:
            InvalidId: `effect` belongs to another tool call.

        """

    async def delete_checkpoint(self, task_id: str) -> None:
        """Delete the task. Deleting it again is not an error."""
