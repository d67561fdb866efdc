"""Values that break stores: ids that look alike, invalid ids, and every kind of record."""

from __future__ import annotations

import datetime
import math
import unicodedata
import urllib.parse
from typing import Any

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
from pytest_wfstate.contracts.records import MAX_DEPTH, Record

FALSY: list[Any] = [None, False, 0, 0.0, "", [], {}]
JSON_VALUES: list[Any] = [*FALSY, "Grüße 你好 🎉 \u2028\x7f\x00", {"": {"": []}}, [[], {}, None], 2**70, -1e-300, True]


def label(value: object) -> str:
    """Return a short name for a parameter: its start and its end, which tell it apart from others."""
    text = ascii(value)
    return text if len(text) <= 24 else f"{text[:12]}...{text[-4:]}"


LONG = "x" * 1024
TRICKY_IDS = [
    *("a", "A", "a/b", "a.b", "a_b", "a b", "a%2Fb", "con", "CON", "..", "../x", "/absolute/x", "\\\\host\\x"),
    *("~", "*", ".json", "a.json", "a.tmp", "a\nb", "你好 🎉", LONG, LONG[:-1] + "y", "你" * 1024),
    *(unicodedata.normalize(form, "é") for form in ("NFC", "NFD")),
]

BAD_TEXT_IDS = ["", "x" * 1025, "a\0b"]  # valid text in a record, but not a valid id
BAD_IDS: list[Any] = [*BAD_TEXT_IDS, "\ud800", None, 7, b"run-1"]


def _look_alike(id: str) -> list[str]:  # noqa: A002 - the name that the contracts use
    quoted, unquoted = urllib.parse.quote(id, safe=""), urllib.parse.unquote(id)
    composed, decomposed = (unicodedata.normalize(form, id) for form in ("NFC", "NFD"))
    changed = [id.upper(), id.lower(), id + "x", id + ".json", "/" + id, "./" + id]
    return [*changed, quoted, unquoted, composed, decomposed, id.replace("/", "_"), id.replace(".", "_")]


ids = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12) | st.text(
    "aA./\\%~_-2Feé ", min_size=1, max_size=6
)
id_pairs = (
    st.tuples(ids, ids) | ids.flatmap(lambda first: st.tuples(st.just(first), st.sampled_from(_look_alike(first))))
).filter(lambda pair: pair[0] != pair[1])

texts = st.text(max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.sampled_from(FALSY) | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
moments = st.datetimes(
    min_value=datetime.datetime(1, 1, 2),
    max_value=datetime.datetime(9999, 12, 30),
    timezones=st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5, minutes=30))]),
)

effects = st.builds(
    SideEffectRecord,
    tool_use_id=ids,
    tool_name=texts,
    target=st.none() | texts,
    completed_at=i64,
    reversible=st.booleans(),
)
checkpoints = st.builds(
    WorkflowCheckpoint,
    task_id=ids,
    agent_id=texts,
    step_index=u32,
    completed_tool_ids=st.sets(texts, max_size=4),
    side_effects_log=st.lists(effects, max_size=3),
    updated_at=i64,
)


def framework(record: type[Record], /, **fields: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type of the framework, with some unknown fields."""
    unknown = st.dictionaries(texts.map(lambda name: f"x-{name}"), json_values, max_size=2)
    return st.builds(lambda own, more: record.model_validate({**own, **more}), st.fixed_dictionaries(fields), unknown)


stage_steps = framework(StageStep, type=st.sampled_from(["pattern", "approval", "loop_until", "deliver"]))
stages = framework(Stage, id=texts, name=texts, step=stage_steps, compensation=json_values, timeout_ms=st.none() | u64)
edges = framework(Edge, **{"from": texts}, to=texts, conditions=st.lists(json_values, max_size=2), label=texts)
workflows = framework(
    Workflow,
    id=texts,
    name=texts,
    start=texts,
    goal=json_values,
    stages=st.lists(stages, max_size=2),
    edges=st.lists(edges, max_size=2),
    max_iterations=u32,
    metadata=json_objects,
)
approval_fields = st.builds(
    ApprovalField,
    name=texts,
    label=st.none() | texts,
    field_type=st.none() | texts,
    options=st.none() | st.lists(json_values, max_size=2),
    required=st.none() | st.booleans(),
)
paused = st.builds(
    PausedWorkflow,
    run_id=ids,
    workflow=workflows,
    paused_stage_id=texts,
    prompt=texts,
    fields=st.lists(approval_fields, max_size=2),
    output_key=texts,
    wf_state=json_objects,
    stage_results=st.lists(json_values, max_size=2),
    completed_stage_ids=st.lists(texts, max_size=3),
    iterations=u32,
    prior_duration_ms=numbers,
    created_at=moments,
)
resume_points = st.builds(
    ResumePoint, run_id=ids, workflow_name=texts, step=u64, next_node_id=texts, scope_snapshot=json_values
)
keys = st.builds(CheckpointKey, workflow_id=ids, run_id=ids, super_step=u64)
metas = st.builds(CheckpointMeta, workflow_id=ids, run_id=ids, super_step=u64, timestamp_ms=i64)
snapshots = st.builds(Snapshot, key=keys, values=json_objects, label=texts, timestamp_ms=i64)
step_kinds = framework(StepKind, type=st.sampled_from(["api_call", "script", "checkpoint", "reply"]))
workflow_steps = framework(
    WorkflowStep,
    id=texts,
    label=texts,
    kind=step_kinds,
    depends_on=st.lists(texts, max_size=2),
    execution=st.sampled_from(["sequential", "parallel"]),
    requires=st.lists(json_values, max_size=2),
    input=json_values,
    skip_if=json_values,
)
definitions = framework(
    WorkflowDefinition,
    id=texts,
    steps=st.lists(workflow_steps, max_size=2),
    input_schema=json_values,
    checkpoint=st.booleans(),
    entry_points=st.lists(json_values, max_size=2),
)
runs = st.builds(
    WorkflowExecutionState,
    run_task_id=ids,
    agent_id=texts,
    thread_id=texts,
    user_id=texts,
    workspace_id=st.none() | texts,
    definition=definitions,
    entry_point=st.none() | texts,
    input=json_values,
    context=json_values,
    created_at=moments,
    updated_at=moments,
)
steps = st.builds(
    WorkflowStepState,
    step_id=ids,
    status=st.sampled_from(TaskStatus),
    result=json_values,
    error=st.none() | texts,
    started_at=st.none() | moments,
    completed_at=st.none() | moments,
    wait_task_id=st.none() | texts,
)

attempts = st.integers(0, 2**64 - 1)
queue_items = st.builds(QueueItem, id=ids, value=json_values, attempts=attempts)
taken_items = st.builds(TakenItem, id=ids, value=json_values, attempts=attempts, token=texts)

RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "SideEffectRecord": effects,
    "WorkflowCheckpoint": checkpoints,
    "StageStep": stage_steps,
    "Stage": stages,
    "Edge": edges,
    "Workflow": workflows,
    "ApprovalField": approval_fields,
    "PausedWorkflow": paused,
    "ResumePoint": resume_points,
    "CheckpointKey": keys,
    "CheckpointMeta": metas,
    "Snapshot": snapshots,
    "StepKind": step_kinds,
    "WorkflowStep": workflow_steps,
    "WorkflowDefinition": definitions,
    "WorkflowExecutionState": runs,
    "WorkflowStepState": steps,
    "QueueItem": queue_items,
    "TakenItem": taken_items,
}


def nested(depth: int, innermost: Any) -> Any:
    """Return `innermost` inside `depth` nested lists."""
    for _ in range(depth):
        innermost = [innermost]
    return innermost


NO_JSON = {
    "nan": math.nan,
    "infinity": math.inf,
    "set": {1, 2},
    "datetime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "bytes": b"x",
    "object": object(),
    "number as key": {1: "one"},
    "lone surrogate": "\ud800",
    "lone surrogate in a key": {"\udfff": 1},
    "too deep": nested(MAX_DEPTH + 1, None),
    "too long an integer": 10**4300,
}
