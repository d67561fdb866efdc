"""Valid records for tests: `samples.paused("run-1", iterations=2)`.

Every field has a value, the same each time, that is missed if a store loses it. Keyword arguments set other values.
"""

from __future__ import annotations

import datetime
from typing import Any, TypeVar

from pytest_wfstate.contracts import (
    CheckpointKey,
    PausedWorkflow,
    ResumePoint,
    SideEffectRecord,
    Snapshot,
    WorkflowCheckpoint,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStep,
    WorkflowStepState,
)
from pytest_wfstate.contracts.records import Record

__all__ = ["checkpoint", "definition", "effect", "key", "paused", "resume_point", "run", "snapshot", "step"]

R = TypeVar("R", bound=Record)

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
_SECONDS = 1_767_323_045


def effect(tool_use_id: str = "use-1", **fields: Any) -> SideEffectRecord:
    """Return an effect of one tool call."""
    return _make(
        SideEffectRecord,
        fields,
        tool_use_id=tool_use_id,
        tool_name="send_refund",
        target="order-17",
        completed_at=_SECONDS,
        reversible=False,
    )


def checkpoint(task_id: str = "task-1", **fields: Any) -> WorkflowCheckpoint:
    """Return a checkpoint of a task that has done one tool call, `use-0`."""
    return _make(
        WorkflowCheckpoint,
        fields,
        task_id=task_id,
        agent_id="agent-1",
        step_index=1,
        completed_tool_ids={"use-0"},
        side_effects_log=[effect("use-0")],
        updated_at=_SECONDS,
    )


def paused(run_id: str = "run-1", **fields: Any) -> PausedWorkflow:
    """Return a run that waits for approval."""
    return _make(
        PausedWorkflow,
        fields,
        run_id=run_id,
        workflow={
            "id": "wf",
            "name": "Refunds",
            "start": "gate",
            "stages": [{"id": "gate", "name": "Gate", "step": {"type": "approval", "role": "clerk"}}],
            "edges": [{"from": "gate", "to": "pay"}],
        },
        paused_stage_id="gate",
        prompt="approve?",
        fields=[{"name": "approved", "required": True}],
        output_key="approval",
        wf_state={"amount": 12.5},
        stage_results=[{"stage": "start", "ok": True}],
        completed_stage_ids=["start"],
        iterations=1,
        prior_duration_ms=0.5,
        created_at=MOMENT,
    )


def resume_point(run_id: str = "run-1", **fields: Any) -> ResumePoint:
    """Return the point at which a run continues."""
    return _make(
        ResumePoint,
        fields,
        run_id=run_id,
        workflow_name="wf",
        step=3,
        next_node_id="tool",
        scope_snapshot={"input": {"k": "v"}},
    )


def key(run_id: str = "run-1", super_step: int = 0, workflow_id: str = "wf") -> CheckpointKey:
    """Return the key of a snapshot."""
    return CheckpointKey(workflow_id=workflow_id, run_id=run_id, super_step=super_step)


def snapshot(run_id: str = "run-1", super_step: int = 0, workflow_id: str = "wf", **fields: Any) -> Snapshot:
    """Return a snapshot of a graph."""
    return _make(
        Snapshot,
        fields,
        key=key(run_id, super_step, workflow_id),
        values={"messages": [{"id": f"m{super_step}"}]},
        label="sample",
        timestamp_ms=_SECONDS * 1000 + 678,
    )


def definition(**fields: Any) -> WorkflowDefinition:
    """Return a workflow with one step."""
    steps = [WorkflowStep.checkpoint("fetch", "Fetch", "ok")]
    return _make(WorkflowDefinition, fields, id="wf-1", steps=steps)


def run(run_task_id: str = "run-1", **fields: Any) -> WorkflowExecutionState:
    """Return the state of a run."""
    return _make(
        WorkflowExecutionState,
        fields,
        run_task_id=run_task_id,
        agent_id="agent-1",
        thread_id="thread-1",
        user_id="user-1",
        workspace_id="workspace-1",
        definition=definition(),
        entry_point="main",
        input={"x": 1},
        context={"steps": {}},
        created_at=MOMENT,
        updated_at=MOMENT,
    )


def step(step_id: str = "fetch", **fields: Any) -> WorkflowStepState:
    """Return the state of a completed step."""
    return _make(
        WorkflowStepState,
        fields,
        step_id=step_id,
        status="completed",
        result={"docs": []},
        started_at=MOMENT,
        completed_at=MOMENT,
    )


def _make(kind: type[R], fields: dict[str, Any], /, **defaults: Any) -> R:
    return kind.model_validate({**defaults, **fields})
