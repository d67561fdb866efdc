"""The runs contract: the definition, context and steps of one workflow execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.strategies import st
from pytest_wfstate.stores.memory import MemoryRunStore

_STEPS = ("fetch", "charge")  # not in the order of their names


def _run(ids: Sequence[str]) -> Any:
    return st.sampled_from([(one,) for one in ids])


def _created(ids: Sequence[str]) -> Any:
    return st.sampled_from([create(one, number).args for one in ids for number in range(3)])


def _updated(ids: Sequence[str]) -> Any:
    return st.sampled_from([update(one, number).args for one in ids for number in range(3)])


def _upserted(ids: Sequence[str]) -> Any:
    return st.sampled_from([upsert(one, name, n).args for one in ids for name in _STEPS for n in range(3)])


def _one(run_id: str, *_: Any) -> list[str]:
    return [run_id]


CREATE = Operation("create_run", _created, mutates=True, required=True, keys=lambda state: [state.run_task_id])
GET = Operation("get_run", _run, required=True, keys=_one)
UPDATE = Operation("update_context", _updated, mutates=True, positional=2, keys=_one)
DELETE = Operation("delete_run", _run, mutates=True, keys=_one)
UPSERT = Operation("upsert_step", _upserted, mutates=True, positional=2, keys=_one)
STEP = Operation(
    "get_step", lambda ids: st.sampled_from([(one, name) for one in ids for name in _STEPS]), positional=2, keys=_one
)
STEPS = Operation("list_steps", _run, keys=_one)


def create(run_id: str, number: int = 1, **fields: Any) -> Call:
    """Create a run."""
    return CREATE(samples.run(run_id, **{"input": {"n": number}, **fields}))


def update(run_id: str, number: int = 1) -> Call:
    """Update the context of a run."""
    return UPDATE(run_id, {"n": number, "steps": {"fetch": {"docs": [number]}}})


def upsert(run_id: str, step_id: str = "fetch", number: int = 1, **fields: Any) -> Call:
    """Keep a step."""
    return UPSERT(run_id, samples.step(step_id, **{"result": {"n": number}, **fields}))


def look(run_id: str, steps: Sequence[str] = ()) -> list[Call]:
    """Return the calls that show a run and some of its steps."""
    return [STEPS(run_id), *(STEP(run_id, one) for one in steps), GET(run_id)]


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [call for one in ids for call in look(one)]


RUNS = Contract(
    "runs",
    [CREATE, GET, UPDATE, DELETE, UPSERT, STEP, STEPS],
    reference=lambda generated: MemoryRunStore(clock=generated.time),
    write=create,
    reads=reads,
)
