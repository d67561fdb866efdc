"""The effects contract: which tool calls of a task are done, so that a restart does not do them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts import WorkflowCheckpoint
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.strategies import st
from pytest_wfstate.stores.memory import MemoryEffectStore


def _task(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


def _saved(ids: Sequence[str]) -> Any:
    return st.sampled_from([(checkpoint(one, number),) for one in ids for number in range(2)])


def _marked(ids: Sequence[str]) -> Any:
    # use-0 is done in some of the checkpoints that are saved; one effect is not that of the tool call.
    uses = [(use, samples.effect(use)) for use in ("use-0", "use-1", "use-2")]
    return st.sampled_from([(one, *use) for one in ids for use in [*uses, ("use-1", samples.effect("use-2"))]])


def _one(task_id: str, *_: Any) -> list[str]:
    return [task_id]


SAVE = Operation("save_checkpoint", _saved, mutates=True, required=True, keys=lambda checkpoint: [checkpoint.task_id])
LOAD = Operation("load_checkpoint", _task, required=True, keys=_one)
MARK = Operation("mark_step_complete", _marked, mutates=True, positional=3, keys=_one)
DELETE = Operation("delete_checkpoint", _task, mutates=True, keys=_one)


def checkpoint(task_id: str, steps: int = 1, **fields: Any) -> WorkflowCheckpoint:
    """Make a checkpoint of a task that has come so far."""
    uses = [f"use-{number}" for number in range(steps)]
    log = [samples.effect(use) for use in uses]
    usual = {"step_index": steps, "completed_tool_ids": set(uses), "side_effects_log": log}
    return samples.checkpoint(task_id, **{**usual, **fields})


def save(task_id: str, steps: int = 1, **fields: Any) -> Call:
    """Save a checkpoint."""
    return SAVE(checkpoint(task_id, steps, **fields))


def _reads(ids: Sequence[str]) -> list[Call]:
    return [LOAD(one) for one in ids]


EFFECTS = Contract(
    "effects",
    [SAVE, LOAD, MARK, DELETE],
    reference=lambda generated: MemoryEffectStore(clock=generated.time),
    write=save,
    reads=_reads,
)
