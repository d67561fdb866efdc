"""Formats calls, their results and what contradicts them. A record is shown by what differs from its sample."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from pytest_wfstate.oracle.linearize import DeadEnd, Unexplained
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.values import alike, is_json, parts

_WIDTH = 72  # of a value
_ORDERS = 3  # that are shown of all that were tried
_DIFFERENCES = 5  # of two results
_LINES = 20  # of calls before the one that is wrong
_LAST = 4  # calls of an order, or before those that are shown
_AROUND = 16  # calls that ran with those that contradict each other
_LENGTH = re.compile(r" \([\d,]+ characters\)$")  # of an elided value

# For each record, the sample to compare it with, and the fields that the sample takes first.
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
    """Format a call as it would be written."""
    args, named = call.split()
    shown = [in_words(arg) for arg in args] + [f"{name}={in_words(arg)}" for name, arg in named.items()]
    return f"{call.name}({', '.join(shown)})"


def outcome_in_words(outcome: Outcome) -> str:
    """Format the outcome of a call."""
    if not isinstance(outcome, Returned):
        return str(outcome)
    return short(_json(outcome.value) if isinstance(outcome.value, (dict, list)) else repr(outcome.value))


def result_in_words(outcome: Outcome) -> str:
    """Format an outcome as it stands behind its call: `-> None`, `refused: ValueError`."""
    return f"-> {outcome_in_words(outcome)}" if isinstance(outcome, Returned) else str(outcome)


def few(lines: Sequence[str]) -> Sequence[str]:
    """Return lines with those in the middle left out, if they are many."""
    left_out = len(lines) - _LINES
    if left_out <= 1:
        return lines
    half = _LINES // 2
    return [*lines[:half], f"-- {left_out:,} more calls --", *lines[-half:]]


def later_in_words(seconds: float) -> str:
    """Format that time has passed."""
    return f"-- {seconds:g} s later --"


def entry_in_words(entry: Entry) -> str:
    """Format a call with its client and its outcome."""
    return f"{entry.client}: {call_in_words(Call(entry.name, entry.args))} {result_in_words(entry.outcome)}"


def expectation(expected: Sequence[Outcome], entry: Entry, model: ReferenceModel) -> list[str]:
    """Return what the reference allows instead of an outcome, and where two records differ, which may be elided."""
    if model.is_generated(expected[0]):
        return ["expected: a new id" if model.generates_id(Call(entry.name)) else f"expected: a new {entry.name}"]
    texts = dict.fromkeys(_alternative(outcome, expected[0]) for outcome in expected)
    return [f"expected: {' or '.join(texts)}", *_difference(expected, entry.outcome)]


def impossible_results(unexplained: Unexplained, model: ReferenceModel) -> str:
    """Show results that no order of the calls explains, and what the reference returns in some of the orders."""
    entries = (f"  {entry_in_words(entry)}" for entry in unexplained.entries)
    orders = dict.fromkeys(_dead_end(dead_end, model) for dead_end in unexplained.dead_ends)
    return "\n".join(["These results are impossible in any order of the calls.", *entries, *list(orders)[:_ORDERS]])


def calls_around(entries: Sequence[Entry], history: Iterable[Entry]) -> list[str]:
    """List the calls of a history that ran with or right before these, with their times."""
    first, last = min(entry.begin for entry in entries), max(entry.end for entry in entries)
    ordered = sorted(history, key=lambda entry: entry.begin)
    before = [entry for entry in ordered if entry.end < first]
    around = [entry for entry in ordered if entry.end >= first and entry.begin <= last]
    shown = [*before[-_LAST:], *around[:_AROUND]]
    rows = [f"  {_milliseconds(entry, shown[0].begin)}  {entry_in_words(entry)}" for entry in shown]
    more = [f"  and {len(around) - _AROUND} more"] if len(around) > _AROUND else []
    return ["The calls around them, with begin and end in milliseconds:", *rows, *more]


def _milliseconds(entry: Entry, start: float) -> str:
    return f"{(entry.begin - start) * 1000:7.1f} - {(entry.end - start) * 1000:7.1f}"


def _dead_end(dead_end: DeadEnd, model: ReferenceModel) -> str:
    state, wrong = dead_end.start, dead_end.wrong
    for entry in dead_end.order:
        state = next(iter(model.step(state, entry)), state)
    changes = [f"{entry.name} ({entry.client})" for entry in dead_end.order if model.mutates(Call(entry.name))]
    earlier = [f"{len(changes) - _LAST:,} others"] if len(changes) > _LAST else []
    calls = ", ".join([*earlier, *changes[-_LAST:]]) or "no change"
    expected = "; ".join(expectation([model.expected(state, wrong)], wrong, model))
    return f"after {calls}: {wrong.name} ({wrong.client}), {expected}"


def _alternative(outcome: Outcome, first: Outcome) -> str:
    """Format an expected outcome, so that it differs from the first one even where both are elided."""
    text = outcome_in_words(outcome)
    looks_equal = _LENGTH.sub("", text) == _LENGTH.sub("", outcome_in_words(first))
    differences = _difference([first], outcome) if looks_equal and outcome is not first else []
    return f"the same, but {differences[0]}" if differences else text


def _difference(expected: Sequence[Outcome], seen: Outcome) -> list[str]:
    if len(expected) != 1 or not isinstance(expected[0], Returned) or not isinstance(seen, Returned):
        return []
    values = (expected[0].value, seen.value)
    has_parts = type(values[0]) is type(values[1]) and any(map(_entries, values))
    if alike(*values) or not (has_parts or _looks_equal(*values)):
        return []
    found = list(itertools.islice(differences(*values), _DIFFERENCES + 1))
    return [*found[:_DIFFERENCES], *(["and more"] if len(found) > _DIFFERENCES else [])]


def in_words(value: Any) -> str:
    """Format an argument as it would be written."""
    if isinstance(value, Snapshot):
        key = value.key
        return _sample_call("snapshot", samples.snapshot, (key.run_id, key.super_step, key.workflow_id), value, {"key"})
    if type(value) in _SAMPLES:
        sample, first = _SAMPLES[type(value)]
        return _sample_call(sample.__name__, sample, tuple(getattr(value, name) for name in first), value, set(first))
    return short(repr(value))


def differences(expected: Any, seen: Any, path: str = "") -> Iterator[str]:
    """Yield each place where two plain values differ, with what differs there."""
    ours, theirs = _entries(expected), _entries(seen)
    if type(expected) is not type(seen) or not (ours or theirs):
        yield f"{path or 'it'} is {_both(expected, seen)}"
        return
    if isinstance(expected, list) and len(ours) != len(theirs):
        if max(len(_json(expected)), len(_json(seen))) <= _WIDTH:
            yield f"{path or 'it'} is {_both(expected, seen)}"
            return
        yield f"{path or 'it'} has {len(theirs):,} items, not {len(ours):,}{_first_of(expected, seen)}"
        return
    differs = False
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        if key not in theirs:
            yield f"{_join(path, key)} is missing"
        elif key not in ours:
            yield f"{_join(path, key)} is new"
        elif not alike(ours[key], theirs[key]):
            yield from differences(ours[key], theirs[key], _join(path, key))
        else:
            continue
        differs = True
    if not differs:  # in what is not a part
        yield f"{path or 'it'} is {_both(expected, seen)}"


def _first_of(expected: Sequence[Any], seen: Sequence[Any]) -> str:
    """Say which is the first item that one list has and the other does not have there."""
    pairs = enumerate(zip(expected, seen, strict=False))
    index = next((number for number, pair in pairs if not alike(*pair)), min(len(expected), len(seen)))
    if index == len(seen):
        return f": item {index} is missing"
    if index == len(expected):
        return f": item {index} is new"
    return f": item {index} is {_both(expected[index], seen[index])}"


def _both(expected: Any, seen: Any) -> str:
    """Format two values that differ, so that this shows."""
    texts = short(_json(seen)), short(_json(expected))
    if texts[0] == texts[1] and type(expected) is not type(seen):
        return f"{texts[0]} ({type(seen).__name__}), not {texts[1]} ({type(expected).__name__})"
    if _LENGTH.sub("", texts[0]) == _LENGTH.sub("", texts[1]):
        return _around_difference(_json(expected), _json(seen))
    return f"{texts[0]}, not {texts[1]}"


def _around_difference(expected: str, seen: str) -> str:
    """Format two long texts by what stands where they begin to differ."""
    pairs = enumerate(zip(expected, seen, strict=False))
    start = next((place for place, (ours, theirs) in pairs if ours != theirs), min(len(expected), len(seen)))
    first = max(0, start - _WIDTH // 4)
    mine, other = (ascii(text[first : start + _WIDTH // 2]) for text in (seen, expected))
    return f"{mine}, not {other}, at character {start:,}"


def _looks_equal(expected: Any, seen: Any) -> bool:
    return _LENGTH.sub("", short(_json(seen))) == _LENGTH.sub("", short(_json(expected)))


def _entries(value: Any) -> dict[str, Any]:
    """Return the parts of a value that can be compared one by one, by name."""
    taken = parts(value)
    named = {str(label).removeprefix("."): part for label, part in taken.ordered if label != ".__reduce__"}
    return named | {str(key): part for key, part in taken.keyed}


def short(text: str) -> str:
    """Elide the middle of a long text."""
    if len(text) <= _WIDTH:
        return text
    return f"{text[: _WIDTH // 2]} ... {text[-_WIDTH // 3 :]} ({len(text):,} characters)"


def _sample_call(name: str, sample: Callable[..., Record], first: tuple[Any, ...], value: Record, but: set[str]) -> str:
    usual = sample(*first)
    fields = {
        field: getattr(value, field)
        for field in type(value).model_fields
        if field not in but and getattr(value, field) != getattr(usual, field)
    }
    while len(first) > 1 and sample(*first[:-1]) == usual:
        first = first[:-1]
    shown = [short(repr(arg)) for arg in first] + [f"{field}={in_words(arg)}" for field, arg in fields.items()]
    return f"samples.{name}({', '.join(shown)})"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _json(value: Any) -> str:
    """Format a value as JSON, if it has one, and else as Python."""
    return json.dumps(value, ensure_ascii=False) if is_json(value) else repr(value)
