"""Records as the original frameworks write them: every backend gives them back byte for byte."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_wfstate
from pytest_wfstate import PausedWorkflow, WorkflowExecutionState, as_sync
from tests.unit.stores.handles import EVERY_BACKEND, Home

Opening = Callable[[str], Any]


@pytest.fixture(params=[*EVERY_BACKEND, "postgres", "redis"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Return what opens an empty store of a contract."""
    if request.param in EVERY_BACKEND:
        return lambda protocol: Home(request.param, protocol, tmp_path).open()
    kind, prefix = {"postgres": "Sql", "redis": "Redis"}[request.param], f"p{uuid.uuid4().hex[:12]}"
    url = request.getfixturevalue(f"{request.param}_server").url
    return lambda protocol: getattr(pytest_wfstate, f"{kind}{protocol}")(url, prefix=prefix)


UPSTREAM_RUN = """{"run_task_id":"run-1","agent_id":"agent-1","thread_id":"thread-1","user_id":"user-1",\
"definition":{"version":2,"steps":[{"kind":{"tool":"mail","type":"external_tool_call"},"id":"a","label":null},\
{"id":"b","label":"B","kind":{"type":"wait_for_event","event":"paid"},"retry":{"max":3}},"free text"],\
"checkpoint":{"type":"internal"}},"input":{},"context":{},\
"created_at":"2026-01-02T03:04:05.678901234Z","updated_at":"2026-01-02T03:04:05.000000001Z"}"""


def test_a_run_of_the_framework_is_given_back_byte_for_byte(opening: Opening) -> None:
    with as_sync(opening("RunStore")) as store:
        store.create_run(WorkflowExecutionState.from_json(UPSTREAM_RUN, "upstream"))

        assert store.get_run("run-1").to_json() == UPSTREAM_RUN


UPSTREAM_PAUSED = """{"run_id":"run-1","workflow":{"start":"gate","id":"wf","stages":[{"id":"gate","step":\
{"type":"human_input","form":[1.5]},"timeout_ms":null},{"stage":"of another kind"}],"max_iterations":"unlimited",\
"edges":{"gate":["pay"]},"name":7},"paused_stage_id":"gate","prompt":"approve?","fields":[\
{"label":null,"name":"amount","field_type":{"number":{"min":0}},"hint":"in €"},"free text"],\
"output_key":"approval","wf_state":{},"stage_results":[],"completed_stage_ids":[],"iterations":1,"prior_duration_ms":0.5,\
"created_at":"2026-01-02T03:04:05.123456789Z"}"""


def test_a_workflow_of_the_framework_is_given_back_byte_for_byte(opening: Opening) -> None:
    with opening("PausedStore") as store:
        store.save(PausedWorkflow.from_json(UPSTREAM_PAUSED, "upstream"))

        assert store.load("run-1").to_json() == UPSTREAM_PAUSED
        assert store.claim("run-1").to_json() == UPSTREAM_PAUSED
        assert store.recover_orphaned() == 1
        assert store.load("run-1").to_json() == UPSTREAM_PAUSED
