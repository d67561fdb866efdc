"""The JSON of every record, compared with files written by hand from the definitions the contracts are based on."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import (
    ApprovalField,
    CheckpointKey,
    CheckpointMeta,
    Edge,
    PausedWorkflow,
    QueueItem,
    ResumePoint,
    SideEffectRecord,
    Snapshot,
    Stage,
    StageStep,
    StepKind,
    TakenItem,
    TaskStatus,
    Workflow,
    WorkflowCheckpoint,
    WorkflowDefinition,
    WorkflowExecutionState,
    WorkflowStep,
    WorkflowStepState,
)
from pytest_wfstate.contracts.records import Record
from tests.unit.values import RECORDS

GOLDEN = Path(__file__).parent / "golden"
SECOND = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
MAIL = SideEffectRecord(
    tool_use_id="use-2", tool_name="send_mail", target=None, completed_at=1767323044, reversible=False
)
FILE = SideEffectRecord(
    tool_use_id="use-1", tool_name="write_file", target="src/main.rs", completed_at=1767323045, reversible=True
)
APPROVAL = StageStep(type="approval")
GATE = Stage(id="gate", name="Gate", step=APPROVAL)
LOOP = Edge(from_="gate", to="gate")
WORKFLOW = Workflow(id="wf", name="WF", start="gate")
DEFINITION = WorkflowDefinition(id="wf-1", steps=[])
UUID = "6f4e0d5c-3a55-4b3c-9a39-0d6ac3d8a001"

BUILT: dict[str, Record] = {
    "side_effect_record.minimal": SideEffectRecord(
        tool_use_id="use-1", tool_name="write_file", target=None, completed_at=0, reversible=False
    ),
    "side_effect_record.full": SideEffectRecord(
        tool_use_id="use-1", tool_name="write_file", target="src/größe.rs", completed_at=1767323045, reversible=True
    ),
    "workflow_checkpoint.minimal": WorkflowCheckpoint(
        task_id="task-1",
        agent_id="unknown",
        step_index=0,
        completed_tool_ids=set(),
        side_effects_log=[],
        updated_at=0,
    ),
    "workflow_checkpoint.full": WorkflowCheckpoint(
        task_id="proj/task.1 final",
        agent_id="agent-1",
        step_index=2**32 - 1,
        completed_tool_ids={"use-2", "use-1"},
        side_effects_log=[MAIL, FILE],
        updated_at=1767323045,
    ),
    "stage_step.minimal": StageStep(type="dedup"),
    "stage_step.full": StageStep.model_validate(
        {"type": "approval", "prompt": "approve?", "unheard_of": [None, {"of": 0.5}]}
    ),
    "stage.minimal": GATE,
    "stage.full": Stage.model_validate(
        {
            "id": "gate",
            "name": "Gate",
            "step": APPROVAL,
            "compensation": {"type": "proposal"},
            "timeout_ms": 2**64 - 1,
            "unheard_of": None,
        }
    ),
    "edge.minimal": Edge(from_="gate", to="pay"),
    "edge.full": Edge.model_validate(
        {
            "from_": "gate",
            "to": "pay",
            "conditions": [{"key": "approval.approved", "equals": True}, False],
            "label": "yes",
            "unheard_of": 1,
        }
    ),
    "workflow.minimal": WORKFLOW,
    "workflow.full": Workflow.model_validate(
        {
            "id": "wf",
            "name": "WF",
            "start": "gate",
            "goal": "pay back",
            "stages": [GATE],
            "edges": [LOOP],
            "max_iterations": 7,
            "metadata": {"team": None},
            "unheard_of": {},
        }
    ),
    "approval_field.minimal": ApprovalField(name="approved"),
    "approval_field.full": ApprovalField(
        name="approved", label="Approved?", field_type="choice", options=["yes", 0, None], required=False
    ),
    "paused_workflow.minimal": PausedWorkflow(
        run_id="run-1",
        workflow=WORKFLOW,
        paused_stage_id="gate",
        prompt="approve?",
        fields=[],
        output_key="approval",
        wf_state={},
        stage_results=[],
        completed_stage_ids=[],
        iterations=1,
        prior_duration_ms=0.0,
        created_at=SECOND,
    ),
    "paused_workflow.full": PausedWorkflow(
        run_id="run-1",
        workflow=WORKFLOW,
        paused_stage_id="gate",
        prompt="genehmigen? 🎉",
        fields=[ApprovalField(name="approved")],
        output_key="approval",
        wf_state={"amount": 12.5, "note": ""},
        stage_results=[{"ok": False}, None],
        completed_stage_ids=["start", "check"],
        iterations=2**32 - 1,
        prior_duration_ms=1234.5,
        created_at=SECOND.replace(microsecond=678901),
    ),
    "resume_point.minimal": ResumePoint(
        run_id="run-1", workflow_name="wf", step=0, next_node_id="", scope_snapshot=None
    ),
    "resume_point.full": ResumePoint(
        run_id="run-1",
        workflow_name="wf",
        step=2**64 - 1,
        next_node_id="tool",
        scope_snapshot={"input": {"k": "v"}},
    ),
    "checkpoint_key.full": CheckpointKey(workflow_id="wf", run_id="main", super_step=2**64 - 1),
    "checkpoint_meta.full": CheckpointMeta(workflow_id="wf", run_id="main", super_step=2, timestamp_ms=1767323045678),
    "snapshot.minimal": Snapshot(
        key=CheckpointKey(workflow_id="wf", run_id="main", super_step=0), values={}, timestamp_ms=0
    ),
    "snapshot.full": Snapshot(
        key=CheckpointKey(workflow_id="wf", run_id="main", super_step=2),
        values={"messages": [{"id": "m1"}], "a": 0},
        label="fork-of:main",
        timestamp_ms=1767323045678,
    ),
    "step_kind.minimal": StepKind(type="reply"),
    "step_kind.full": StepKind.model_validate({"type": "checkpoint", "message": "ok"}),
    "workflow_step.minimal": WorkflowStep.checkpoint("c", "Checkpoint", "ok"),
    "workflow_step.full": WorkflowStep.model_validate(
        {
            "id": "c",
            "label": "Checkpoint",
            "kind": {"type": "api_call", "url": "https://example.org"},
            "depends_on": ["a", "b"],
            "execution": "parallel",
            "requires": [{"tool": "mail"}],
            "input": {},
            "skip_if": "{steps.a}",
            "unheard_of": "",
        }
    ),
    "workflow_definition.minimal": WorkflowDefinition(id=UUID, steps=[]),
    "workflow_definition.full": WorkflowDefinition.model_validate(
        {
            "id": UUID,
            "steps": [WorkflowStep.checkpoint("c", "Checkpoint", "ok")],
            "input_schema": {"type": "object"},
            "checkpoint": True,
            "entry_points": [{"id": "main"}],
            "unheard_of": False,
        }
    ),
    "workflow_execution_state.minimal": WorkflowExecutionState(
        run_task_id="run-1",
        agent_id="agent-1",
        thread_id="thread-test",
        user_id="user-test",
        definition=DEFINITION,
        created_at=SECOND,
        updated_at=SECOND,
    ),
    "workflow_execution_state.full": WorkflowExecutionState(
        run_task_id="run-1",
        agent_id="agent-1",
        thread_id="thread-test",
        user_id="user-test",
        workspace_id="",
        definition=DEFINITION,
        entry_point="main",
        input={"x": 1},
        context={"steps": {"c": "ok"}},
        created_at=SECOND.replace(microsecond=678000),
        updated_at=SECOND.replace(microsecond=1),
    ),
    "workflow_step_state.minimal": WorkflowStepState(step_id="fetch"),
    "workflow_step_state.full": WorkflowStepState(
        step_id="fetch",
        status=TaskStatus.INPUT_REQUIRED,
        result={"docs": []},
        error="",
        started_at=SECOND,
        completed_at=SECOND.replace(microsecond=120000),
        wait_task_id="task-9",
    ),
    "queue_item.minimal": QueueItem(id="order-17", value=None),
    "queue_item.full": QueueItem(id="Größe", value={"amount": 12.5}, attempts=2**64 - 1),
    "taken_item.full": TakenItem(id="order-17", value=[1, 1.0], attempts=2, token="token-1"),
}


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.json").read_text(encoding="utf-8").removesuffix("\n")


@pytest.mark.parametrize("name", BUILT)
def test_a_record_equals_its_golden_file_read_and_written(name: str) -> None:
    text = golden(name)

    record = type(BUILT[name]).from_json(text, name)

    assert record == BUILT[name]
    assert record.to_json(indent=2) == BUILT[name].to_json(indent=2) == text


def test_golden_files_cover_every_record() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(BUILT)
    assert {type(record).__name__ for record in BUILT.values()} == set(RECORDS)


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_record_survives_its_own_json_and_being_checked(kind: str, data: Any) -> None:
    record = data.draw(RECORDS[kind])

    again = type(record).from_json(record.to_json(), "here")

    assert again == record
    assert again.to_json() == type(record).checked(record).to_json() == record.to_json()
