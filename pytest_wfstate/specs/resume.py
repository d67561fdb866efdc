"""The resume contract: where a run continues after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.stores.memory import MemoryResumeStore

_EMPTY: dict[str, Any] = {"step": 0, "scope_snapshot": {}}


def _saves(ids: Sequence[str]) -> Any:
    # Only two records, so that an equal one is often saved again.
    return st.sampled_from([(samples.resume_point(run_id, **fields),) for run_id in ids for fields in ({}, _EMPTY)])


SAVE = Operation("save", _saves, mutates=True, returns_nothing=True, required=True, keys=lambda point: [point.run_id])
LOAD = Operation("load", only_an_id, required=True, keys=first_id)
DELETE = Operation("delete", only_an_id, mutates=True, returns_nothing=True, keys=first_id)


def save(run_id: str, step: int = 1, **fields: Any) -> Call:
    """Return a call that saves a resume point."""
    return SAVE(samples.resume_point(run_id, step=step, **fields))


RESUME = Contract(
    "resume",
    [SAVE, LOAD, DELETE],
    reference=lambda generated: MemoryResumeStore(clock=generated.time),
    write=save,
    reads=lambda ids: [LOAD(run_id) for run_id in ids],
)
