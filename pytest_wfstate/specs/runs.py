"""The runs contract: the definition, context and steps of one workflow execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts import WorkflowStepState
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.specs.random_values import any_json, any_record
from pytest_wfstate.stores.memory import MemoryRunStore

_STEPS = ("fetch", "charge")  # not in alphabetical order


def _creates(ids: Sequence[str]) -> Any:
    numbered = [create(run_id, number).args for run_id in ids for number in range(3)]
    return st.sampled_from([*numbered, *(create(run_id, workspace_id=None, context=None).args for run_id in ids)])


def _updates(ids: Sequence[str]) -> Any:
    numbered = [update(run_id, number).args for run_id in ids for number in range(3)]
    return st.sampled_from([*numbered, *((run_id, {}) for run_id in ids)])


def _upserts(ids: Sequence[str]) -> Any:
    steps = [(run_id, step_id) for run_id in ids for step_id in _STEPS]
    numbered = [upsert(*step, number).args for step in steps for number in range(3)]
    waiting = [upsert(*step, status="input_required", result=None, completed_at=None).args for step in steps]
    return st.sampled_from([*numbered, *waiting])


def _steps(ids: Sequence[str]) -> Any:
    return st.sampled_from([(run_id, step_id) for run_id in ids for step_id in _STEPS])


CREATE = Operation(
    "create_run",
    _creates,
    mutates=True,
    returns_nothing=True,
    required=True,
    keys=lambda state: [state.run_task_id],
)
GET = Operation("get_run", only_an_id, required=True, keys=first_id)
UPDATE = Operation(
    "update_context",
    _updates,
    mutates=True,
    returns_nothing=True,
    positional=2,
    keys=first_id,
    values=lambda run_id: st.tuples(st.just(run_id), any_json()),
)
DELETE = Operation("delete_run", only_an_id, mutates=True, returns_nothing=True, keys=first_id)
UPSERT = Operation(
    "upsert_step",
    _upserts,
    mutates=True,
    returns_nothing=True,
    positional=2,
    keys=first_id,
    values=lambda run_id: st.tuples(st.just(run_id), any_record(WorkflowStepState, step_id="fetch")),
)
STEP = Operation("get_step", _steps, positional=2, keys=first_id)
STEPS = Operation("list_steps", only_an_id, keys=first_id)


def create(run_id: str, number: int = 1, **fields: Any) -> Call:
    """Return a call that creates a run."""
    return CREATE(samples.run(run_id, **{"input": {"n": number}, **fields}))


def update(run_id: str, number: int = 1) -> Call:
    """Return a call that updates the context of a run."""
    return UPDATE(run_id, {"n": number, "steps": {"fetch": {"docs": [number]}}})


def upsert(run_id: str, step_id: str = "fetch", number: int = 1, **fields: Any) -> Call:
    """Return a call that saves a step."""
    return UPSERT(run_id, samples.step(step_id, **{"result": {"n": number}, **fields}))


def look(run_id: str, steps: Sequence[str] = ()) -> list[Call]:
    """Return the calls that show a run and some of its steps."""
    return [STEPS(run_id), *(STEP(run_id, step_id) for step_id in steps), GET(run_id)]


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [call for run_id in ids for call in look(run_id)]


RUNS = Contract(
    "runs",
    [CREATE, GET, UPDATE, DELETE, UPSERT, STEP, STEPS],
    reference=lambda generated: MemoryRunStore(clock=generated.time),
    write=create,
    reads=reads,
)
