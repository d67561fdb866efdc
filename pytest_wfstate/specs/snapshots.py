"""The snapshots contract: the state of a graph after every super-step, to go back to or to fork from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.contracts.snapshots import CheckpointKey
from pytest_wfstate.specs.arguments import st
from pytest_wfstate.stores.memory import MemorySnapshotStore

STEP = 2
LATER = 10  # sorts before STEP as text
WORKFLOW = "wf"


def key(run_id: str, super_step: int = STEP, workflow_id: str = WORKFLOW) -> CheckpointKey:
    """Return a key. Its ids are not validated: that is up to the store."""
    return CheckpointKey.model_construct(workflow_id=workflow_id, run_id=run_id, super_step=super_step)


def _runs(ids: Sequence[str]) -> Any:
    return st.sampled_from([(WORKFLOW, run_id) for run_id in ids])


def _keys(ids: Sequence[str]) -> list[CheckpointKey]:
    return [key(run_id, step) for run_id in ids for step in (STEP, LATER)]


def _saves(ids: Sequence[str]) -> Any:
    return st.sampled_from([save(run_id, n, step).args for run_id in ids for step in (STEP, LATER) for n in (1, 2, 3)])


def _forks(ids: Sequence[str]) -> Any:
    edits: list[Any] = [[], [[]], [[("n", 99)]]]
    return st.sampled_from([(source, *more) for source in _keys(ids) for more in edits])


def _id_of_run(_: str, run_id: str) -> list[str]:
    return [run_id]


def _id_of_key(key: CheckpointKey, *_: Any) -> list[str]:
    return [key.run_id]


SAVE = Operation(
    "save",
    _saves,
    mutates=True,
    returns_nothing=True,
    required=True,
    keys=lambda snapshot: _id_of_key(snapshot.key),
)
LOAD = Operation("load", lambda ids: st.sampled_from([(key,) for key in _keys(ids)]), required=True, keys=_id_of_key)
LATEST = Operation("latest", _runs, positional=2, keys=_id_of_run)
LIST = Operation("list", _runs, positional=2, keys=_id_of_run)
FORK = Operation("fork", _forks, mutates=True, positional=2, keys=_id_of_key, generates_id=True)


def save(run_id: str, number: int = 1, super_step: int = STEP, workflow_id: str = WORKFLOW, **fields: Any) -> Call:
    """Return a call that saves a snapshot."""
    defaults = {"values": {"n": [number]}, "timestamp_ms": 1_000 + number}
    return SAVE(samples.snapshot(run_id, super_step, workflow_id, **{**defaults, **fields}))


def look(run_id: str, workflow_id: str = WORKFLOW, steps: Sequence[int] = (STEP,)) -> list[Call]:
    """Return the calls that show a run and some of its snapshots."""
    loads = [LOAD(key(run_id, step, workflow_id)) for step in steps]
    return [LIST(workflow_id, run_id), *loads, LATEST(workflow_id, run_id)]


def reads(ids: Sequence[str]) -> list[Call]:
    """Return the calls that show everything about these ids."""
    return [call for run_id in ids for call in look(run_id)]


SNAPSHOTS = Contract(
    "snapshots",
    [SAVE, LOAD, LATEST, LIST, FORK],
    reference=lambda generated: MemorySnapshotStore(clock=generated.time, new_id=generated.id),
    write=save,
    reads=reads,
    replaced=lambda call: [LOAD(snapshot.key) for snapshot in call.args],
)
