"""The snapshots contract: the state of a graph after every super-step, to go back to or to fork from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.contracts.snapshots import CheckpointKey
from pytest_wfstate.specs.strategies import st
from pytest_wfstate.stores.memory import MemorySnapshotStore

STEP = 2
LATER = 10  # as text it is less
WORKFLOW = "wf"


def key(run_id: str, super_step: int = STEP, workflow_id: str = WORKFLOW) -> CheckpointKey:
    """Make a key. Whether its ids can be ids is for the store to say."""
    return CheckpointKey.model_construct(workflow_id=workflow_id, run_id=run_id, super_step=super_step)


def _run(ids: Sequence[str]) -> Any:
    return st.sampled_from([(WORKFLOW, one) for one in ids])


def _keys(ids: Sequence[str]) -> list[CheckpointKey]:
    return [key(one, step) for one in ids for step in (STEP, LATER)]


def _saved(ids: Sequence[str]) -> Any:
    return st.sampled_from(
        [save(one.run_id, number, one.super_step).args for one in _keys(ids) for number in (1, 2, 3)]
    )


def _forked(ids: Sequence[str]) -> Any:
    edits: list[Any] = [[], [("n", 99)]]
    return st.sampled_from([(one, *more) for one in _keys(ids) for more in ([], [edits[0]], [edits[1]])])


def _of_run(_: str, run_id: str) -> list[str]:
    return [run_id]


def _of_key(one: CheckpointKey, *_: Any) -> list[str]:
    return [one.run_id]


SAVE = Operation("save", _saved, mutates=True, required=True, keys=lambda snapshot: _of_key(snapshot.key))
LOAD = Operation("load", lambda ids: st.sampled_from([(one,) for one in _keys(ids)]), required=True, keys=_of_key)
LATEST = Operation("latest", _run, positional=2, keys=_of_run)
LIST = Operation("list", _run, positional=2, keys=_of_run)
FORK = Operation("fork", _forked, mutates=True, positional=2, keys=_of_key, generates_id=True)


def save(run_id: str, number: int = 1, super_step: int = STEP, workflow_id: str = WORKFLOW, **fields: Any) -> Call:
    """Save a snapshot."""
    usual = {"values": {"n": [number]}, "timestamp_ms": 1_000 + number}
    return SAVE(samples.snapshot(run_id, super_step, workflow_id, **{**usual, **fields}))


def look(run_id: str, workflow_id: str = WORKFLOW, steps: Sequence[int] = (STEP,)) -> list[Call]:
    """Return the calls that show a run and some of its snapshots."""
    loads = [LOAD(key(run_id, step, workflow_id)) for step in steps]
    return [LIST(workflow_id, run_id), *loads, LATEST(workflow_id, run_id)]


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [call for one in ids for call in look(one)]


SNAPSHOTS = Contract(
    "snapshots",
    [SAVE, LOAD, LATEST, LIST, FORK],
    reference=lambda generated: MemorySnapshotStore(clock=generated.time, new_id=generated.id),
    write=save,
    reads=reads,
)
