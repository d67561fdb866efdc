"""The effects contract: which tool calls of a task are done, so that a restart does not repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts import SideEffectRecord, WorkflowCheckpoint
from pytest_wfstate.contracts.base import Call, Contract, Operation
from pytest_wfstate.specs.arguments import first_id, only_an_id, st
from pytest_wfstate.specs.random_values import any_record
from pytest_wfstate.stores.memory import MemoryEffectStore


def _saves(ids: Sequence[str]) -> Any:
    return st.sampled_from([(checkpoint(task_id, steps),) for task_id in ids for steps in range(2)])


def _marks(ids: Sequence[str]) -> Any:
    # Some of the saved checkpoints list use-0 as done; the last effect belongs to another tool call.
    uses = [(use, samples.effect(use)) for use in ("use-0", "use-1", "use-2")]
    return st.sampled_from([(task_id, *use) for task_id in ids for use in [*uses, ("use-1", samples.effect("use-2"))]])


SAVE = Operation(
    "save_checkpoint",
    _saves,
    mutates=True,
    returns_nothing=True,
    required=True,
    keys=lambda checkpoint: [checkpoint.task_id],
)
LOAD = Operation("load_checkpoint", only_an_id, required=True, keys=first_id)
MARK = Operation(
    "mark_step_complete",
    _marks,
    mutates=True,
    returns_nothing=True,
    positional=3,
    keys=first_id,
    values=lambda task_id: st.tuples(
        st.just(task_id), st.just("use-1"), any_record(SideEffectRecord, tool_use_id="use-1")
    ),
)
DELETE = Operation("delete_checkpoint", only_an_id, mutates=True, returns_nothing=True, keys=first_id)


def checkpoint(task_id: str, steps: int = 1, **fields: Any) -> WorkflowCheckpoint:
    """Return a checkpoint of a task that has done this many steps."""
    uses = [f"use-{number}" for number in range(steps)]
    log = [samples.effect(use) for use in uses]
    defaults = {"step_index": steps, "completed_tool_ids": set(uses), "side_effects_log": log}
    return samples.checkpoint(task_id, **{**defaults, **fields})


def save(task_id: str, steps: int = 1, **fields: Any) -> Call:
    """Return a call that saves a checkpoint."""
    return SAVE(checkpoint(task_id, steps, **fields))


EFFECTS = Contract(
    "effects",
    [SAVE, LOAD, MARK, DELETE],
    reference=lambda generated: MemoryEffectStore(clock=generated.time),
    write=save,
    reads=lambda ids: [LOAD(task_id) for task_id in ids],
)
