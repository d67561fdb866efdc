"""Calls and their results in words, as short as can be: a record is shown by what it does not share with its sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate import samples
from pytest_wfstate.contracts import (
    CheckpointKey,
    PausedWorkflow,
    ResumePoint,
    SideEffectRecord,
    Snapshot,
    WorkflowCheckpoint,
    WorkflowExecutionState,
    WorkflowStepState,
)
from pytest_wfstate.contracts.base import Call
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.oracle.history import Entry, Outcome, Returned
from pytest_wfstate.oracle.linearize import Unexplained
from pytest_wfstate.oracle.model import ReferenceModel

_WIDTH = 72  # of a value
_ORDERS = 3  # that are shown of all that were tried
_LAST = 4  # calls of an order

# For each record, the sample it may be like, and the fields that the sample takes first.
_SAMPLES: dict[type[Record], tuple[Callable[..., Record], tuple[str, ...]]] = {
    PausedWorkflow: (samples.paused, ("run_id",)),
    WorkflowCheckpoint: (samples.checkpoint, ("task_id",)),
    SideEffectRecord: (samples.effect, ("tool_use_id",)),
    ResumePoint: (samples.resume_point, ("run_id",)),
    WorkflowExecutionState: (samples.run, ("run_task_id",)),
    WorkflowStepState: (samples.step, ("step_id",)),
    CheckpointKey: (samples.key, ("run_id", "super_step", "workflow_id")),
}


def call_in_words(call: Call) -> str:
    """Show a call as one would write it."""
    args, named = call.split()
    shown = [in_words(one) for one in args] + [f"{name}={in_words(one)}" for name, one in named.items()]
    return f"{call.name}({', '.join(shown)})"


def outcome_in_words(outcome: Outcome) -> str:
    """Show what came of a call."""
    if not isinstance(outcome, Returned):
        return str(outcome)
    return short(_json(outcome.value) if isinstance(outcome.value, (dict, list)) else repr(outcome.value))


def entry_in_words(entry: Entry) -> str:
    """Show who made a call, and what came of it."""
    sign = "-> " if isinstance(entry.outcome, Returned) else ""
    call = Call(entry.name, entry.args)
    return f"{entry.client}: {call_in_words(call)} {sign}{outcome_in_words(entry.outcome)}"


def unexplained_in_words(unexplained: Unexplained, model: ReferenceModel) -> str:
    """Say which results no order of the calls explains, and what they would have been in some."""
    shown = (f"  {entry_in_words(entry)}" for entry in unexplained.entries)
    orders = (_in_that_order(*dead_end, model) for dead_end in unexplained.dead_ends)
    return "\n".join(["no order of the calls explains this:", *shown, *list(dict.fromkeys(orders))[:_ORDERS]])


def _in_that_order(order: Sequence[Entry], wrong: Entry, model: ReferenceModel) -> str:
    world = model.start()
    for entry in order:
        world = next(iter(model.step(world, entry)), world)
    done = [f"{one.name} ({one.client})" for one in order if model.mutates(Call(one.name, one.args))]
    earlier = [f"{len(done) - _LAST:,} others"] if len(done) > _LAST else []
    told = ", ".join([*earlier, *done[-_LAST:]]) or "nothing"
    return f"after {told}: {wrong.name} gives {outcome_in_words(model.expected(world, wrong))}"


def in_words(value: Any) -> str:
    """Show an argument as one would write it."""
    if isinstance(value, Snapshot):
        key = value.key
        return _made("snapshot", samples.snapshot, (key.run_id, key.super_step, key.workflow_id), value, {"key"})
    if type(value) in _SAMPLES:
        sample, first = _SAMPLES[type(value)]
        return _made(sample.__name__, sample, tuple(getattr(value, name) for name in first), value, set(first))
    return short(repr(value))


def difference(expected: Any, seen: Any, path: str = "") -> str:
    """Name the first place where two plain values differ, and what is there."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in [*expected, *(key for key in seen if key not in expected)]:
            if key not in seen:
                return f"{_at(path, key)} is gone"
            if key not in expected:
                return f"{_at(path, key)} is new"
            if _json(expected[key]) != _json(seen[key]):
                return difference(expected[key], seen[key], _at(path, key))
    if isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        for number, (one, other) in enumerate(zip(expected, seen, strict=True)):
            if _json(one) != _json(other):
                return difference(one, other, _at(path, str(number)))
    return f"{path or 'it'} is {short(_json(seen))}, not {short(_json(expected))}"


def short(text: str) -> str:
    """Cut a long text in the middle."""
    if len(text) <= _WIDTH:
        return text
    return f"{text[: _WIDTH // 2]} ... {text[-_WIDTH // 3 :]} ({len(text):,} characters)"


def _made(name: str, sample: Callable[..., Record], first: tuple[Any, ...], value: Record, but: set[str]) -> str:
    usual = sample(*first)
    fields = {
        field: getattr(value, field)
        for field in type(value).model_fields
        if field not in but and getattr(value, field) != getattr(usual, field)
    }
    while len(first) > 1 and sample(*first[:-1]) == usual:
        first = first[:-1]
    shown = [short(repr(one)) for one in first] + [f"{field}={in_words(one)}" for field, one in fields.items()]
    return f"samples.{name}({', '.join(shown)})"


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
