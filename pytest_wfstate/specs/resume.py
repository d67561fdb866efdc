"""The resume contract: where a run goes on after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.strategies import st
from pytest_wfstate.stores.memory import MemoryResumeStore

EMPTY: dict[str, Any] = {"step": 0, "scope_snapshot": {}}


def _run(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


def _saved(ids: Sequence[str]) -> Any:
    # Few, so that one soon follows another.
    return st.sampled_from([(samples.resume_point(one, **fields),) for one in ids for fields in ({}, EMPTY)])


def _one(run_id: str) -> list[str]:
    return [run_id]


SAVE = Operation("save", _saved, mutates=True, required=True, keys=lambda point: [point.run_id])
LOAD = Operation("load", _run, required=True, keys=_one)
DELETE = Operation("delete", _run, mutates=True, keys=_one)


def save(run_id: str, step: int = 1, **fields: Any) -> Call:
    """Save the point at which a run goes on."""
    return SAVE(samples.resume_point(run_id, step=step, **fields))


def _reads(ids: Sequence[str]) -> list[Call]:
    return [LOAD(one) for one in ids]


RESUME = Contract(
    "resume",
    [SAVE, LOAD, DELETE],
    reference=lambda generated: MemoryResumeStore(clock=generated.time),
    write=save,
    reads=_reads,
)
