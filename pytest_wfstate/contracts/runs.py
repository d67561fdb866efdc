"""Runs: the definition, context and steps of one workflow execution."""

from __future__ import annotations

import enum
import uuid
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import Field

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.framework import FrameworkType, Open
from pytest_wfstate.contracts.moments import Moment
from pytest_wfstate.contracts.records import Json, Record, Text, left_out
from pytest_wfstate.errors import NotFound

__all__ = [
    "RunStore",
    "StepKind",
    "TaskStatus",
    "WorkflowDefinition",
    "WorkflowExecutionState",
    "WorkflowStep",
    "WorkflowStepState",
]


class TaskStatus(enum.StrEnum):
    """The state of a step."""

    PENDING = "pending"
    RUNNING = "running"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class StepKind(FrameworkType):
    """What a step does: its `type`, and the fields that go with that type.

    Known types are api_call, script, agent_run, tool_call, external_tool_call, condition, checkpoint, wait_for_input,
    wait_for_event and reply.
    """

    type: Open[Text]


class WorkflowStep(FrameworkType):
    """One step of a definition."""

    id: Open[Text]
    label: Open[Text]
    kind: Open[StepKind]
    depends_on: Open[list[Text]] = Field(default_factory=list)
    execution: Open[Text] = "sequential"
    requires: Open[list[Json]] = Field(default_factory=list)
    input: Json = left_out()
    skip_if: Json = left_out()

    @classmethod
    def checkpoint(cls, step_id: str, label: str, message: str) -> Self:
        """Return a step that only records that the run got this far."""
        return cls.model_validate({"id": step_id, "label": label, "kind": {"type": "checkpoint", "message": message}})


class WorkflowDefinition(FrameworkType):
    """The steps of a workflow, as they were when the run started."""

    id: Open[Text]
    steps: Open[list[Open[WorkflowStep]]]
    input_schema: Json = left_out()
    checkpoint: Json = False
    entry_points: Open[list[Json]] = Field(default_factory=list)

    @classmethod
    def new(cls, steps: list[WorkflowStep]) -> Self:
        """Return a definition with a new id."""
        return cls.model_validate({"id": str(uuid.uuid4()), "steps": steps})


class WorkflowExecutionState(Record):
    """What is needed to resume a run, apart from its steps."""

    run_task_id: Text
    agent_id: Text
    thread_id: Text
    user_id: Text
    workspace_id: Text | None = left_out()
    definition: WorkflowDefinition
    entry_point: Text | None = left_out()
    input: Json = None
    context: Json = None
    created_at: Moment
    updated_at: Moment

    @classmethod
    def new(
        cls,
        run_task_id: str,
        agent_id: str,
        thread_id: str,
        user_id: str,
        definition: WorkflowDefinition,
        **fields: Any,
    ) -> Self:
        """Return a run that starts now, with empty input and context unless `fields` set them."""
        moment = now()
        return cls(
            run_task_id=run_task_id,
            agent_id=agent_id,
            thread_id=thread_id,
            user_id=user_id,
            definition=definition,
            **{"input": {}, "context": {}, "created_at": moment, "updated_at": moment, **fields},
        )


class WorkflowStepState(Record):
    """The state and the result of one step of a run."""

    step_id: Text
    status: TaskStatus = TaskStatus.PENDING
    result: Json = left_out()
    error: Text | None = left_out()
    started_at: Moment | None = left_out()
    completed_at: Moment | None = left_out()
    wait_task_id: Text | None = left_out()


def no_run(run_task_id: str) -> NotFound:
    """Return the error for updating a missing run."""
    return NotFound(f"there is no run {run_task_id!r}. Nothing was changed; create it first with create_run(...).")


@runtime_checkable
class RunStore(Protocol):
    """Keeps one `WorkflowExecutionState` per run and one `WorkflowStepState` per step."""

    async def create_run(self, state: WorkflowExecutionState) -> None:
        """Store `state`, replacing any that its run had. The run's steps stay."""

    async def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        """Return the run's state, or None if there is none."""

    async def update_context(self, run_task_id: str, context: Any) -> None:
        """Replace the run's context and its `updated_at`, and nothing else.

        Raises:
            NotFound: there is no such run.

        """

    async def delete_run(self, run_task_id: str) -> None:
        """Delete the run and its steps. Deleting them again is not an error."""

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        """Store `step`, in place of the one with its id or after all others. The run need not exist yet."""

    async def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        """Return one step, or None if there is none."""

    async def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        """Return the run's steps in the order in which they were first stored."""
