"""Effects: which tool calls of a task are done, so that a restart does not do them again."""

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
    target: Text | None
    completed_at: I64
    reversible: Flag

    @classmethod
    def new(cls, tool_use_id: str, tool_name: str, target: str | None = None, *, reversible: bool) -> Self:
        """Record an effect that was completed just now."""
        return cls(
            tool_use_id=tool_use_id,
            tool_name=tool_name,
            target=target,
            completed_at=seconds(now()),
            reversible=reversible,
        )


class WorkflowCheckpoint(Record):
    """How far one task has come: the tool calls that are done, and what each of them did."""

    task_id: Text
    agent_id: Text
    step_index: U32
    completed_tool_ids: Annotated[set[Text], PlainSerializer(sorted)]
    side_effects_log: list[SideEffectRecord]
    updated_at: I64

    @classmethod
    def new(cls, task_id: str, agent_id: str) -> Self:
        """Start a checkpoint at which nothing is done yet."""
        return cls(
            task_id=task_id,
            agent_id=agent_id,
            step_index=0,
            completed_tool_ids=set(),
            side_effects_log=[],
            updated_at=seconds(now()),
        )

    def is_completed(self, tool_use_id: str) -> bool:
        """Tell whether this tool call is done and must be skipped."""
        return tool_use_id in self.completed_tool_ids

    def mark(self, effect: SideEffectRecord, at: int) -> None:
        """Count `effect` as done at second `at`. One that was counted before changes nothing."""
        if self.is_completed(effect.tool_use_id):
            return
        self.step_index += 1  # first, because it is what can be refused
        self.completed_tool_ids.add(effect.tool_use_id)
        self.side_effects_log.append(effect)
        self.updated_at = at


def check_effect(tool_use_id: str, effect: SideEffectRecord) -> SideEffectRecord:
    """Copy `effect`, which must be an effect of `tool_use_id`.

    Raises:
        InvalidId: it is the effect of another tool call, or the id is no id.

    """
    effect = SideEffectRecord.checked(effect)
    if effect.tool_use_id != check_id("tool use id", tool_use_id):
        raise InvalidId(
            f"the effect is of tool use id {effect.tool_use_id!r}, but {tool_use_id!r} is being marked. "
            "Mark a tool call with its own effect."
        )
    return effect


@runtime_checkable
class EffectStore(Protocol):
    """Keeps one `WorkflowCheckpoint` per task."""

    async def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        """Keep `checkpoint` in place of whatever its task had."""

    async def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        """Give the task's checkpoint, or None if it has none."""

    async def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        """Add one effect, in one step that no other caller can come between.

        A task without a checkpoint gets one, of agent "unknown". Marking the same id again changes nothing.

        Raises:
            InvalidId: `effect` is the effect of another tool call.

        """

    async def delete_checkpoint(self, task_id: str) -> None:
        """Forget the task. Forgetting it again is no error."""
