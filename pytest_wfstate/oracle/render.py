"""Formats calls, their results and what contradicts them. A record is shown by what differs from its sample."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
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
from pytest_wfstate.contracts.base import Call, Contract
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.errors import AdapterError, Violation, blamed
from pytest_wfstate.oracle.history import Entry, Outcome, Refused, Returned
from pytest_wfstate.oracle.linearize import DeadEnd, Unexplained
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState
from pytest_wfstate.oracle.values import Same, alike, exactly, is_json, parts

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


_SHOW: ContextVar[Callable[[Any], str | None] | None] = ContextVar("show", default=None)
"""How the contract that is being checked formats values, if it says so."""


@contextlib.contextmanager
def shown_by(contract: Contract) -> Iterator[None]:
    """Format values as a contract says, for as long as this lasts."""
    token = _SHOW.set(contract.show)
    try:
        yield
    finally:
        _SHOW.reset(token)


def _shown(value: Any) -> str | None:
    """Return a value as its contract formats it, or None if that is as usual.

    Raises:
        AdapterError: the function that formats it raises an error.
    """
    show = _SHOW.get()
    try:
        return None if show is None else show(value)
    except Exception as error:
        raise AdapterError(
            f"show= of the contract raises {type(error).__name__}: {error}. It was called with {short(repr(value))}. "
            "It must return text for any argument and result, or None to have that shown as usual."
        ) from error


def call_in_words(call: Call) -> str:
    """Format a call as it would be written."""
    args, named = call.split()
    shown = [in_words(arg) for arg in args] + [f"{name}={in_words(arg)}" for name, arg in named.items()]
    return f"{call.name}({', '.join(shown)})"


def outcome_in_words(outcome: Outcome) -> str:
    """Format the outcome of a call."""
    if not isinstance(outcome, Returned):
        return str(outcome)
    value = outcome.value
    return short(_json(value) if isinstance(value, (dict, list)) else _shown(value) or repr(value))


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
        return [f"expected: a new {'id' if model.generates_id(Call(entry.name)) else 'token'}"]
    texts = dict.fromkeys(_alternative(outcome, expected[0]) for outcome in expected)
    return [f"expected: {' or '.join(texts)}", *_difference(expected, entry.outcome)]


def deviation(seen: Outcome, expected: Outcome) -> str:
    """Return how an outcome differs from the expected one, in few words that are the same for many calls."""
    if not isinstance(seen, Returned):
        instead = "" if isinstance(expected, Returned) else f" instead of {_error_name(expected)}"
        return f"raises {_error_name(seen)}{instead}"
    if not isinstance(expected, Returned):
        return f"does not raise {_error_name(expected)}"
    kinds = [_kind(value) for value in (seen.value, expected.value)]
    if kinds[0] != kinds[1]:
        return f"returns {kinds[0]} instead of {kinds[1]}"
    if isinstance(seen.value, list):
        is_same = alike(expected.value, seen.value, in_order=False)
        return "returns a list in another order" if is_same else "returns another list"
    if isinstance(seen.value, dict):
        return f"returns a record with another {next(differences(expected.value, seen.value)).split(' ')[0]}"
    return f"returns another value: {kinds[0]}"


def _error_name(outcome: Outcome) -> str:
    return outcome.error.__name__ if isinstance(outcome, Refused) else str(outcome)


def _kind(value: Any) -> str:
    names = {"NoneType": "None", "bool": "a bool", "str": "a text", "dict": "a record", "list": "a list"}
    return names.get(type(value).__name__, f"a value of type {type(value).__name__}")


def impossible_results(unexplained: Unexplained, model: ReferenceModel) -> Violation:
    """Show results that no order of the calls explains, and what the reference returns in some of the orders."""
    entries = (f"  {entry_in_words(entry)}" for entry in unexplained.entries)
    orders = dict.fromkeys(_dead_end(dead_end, model) for dead_end in unexplained.dead_ends)
    lines = ["These results are impossible in any order of the calls.", *entries, *list(orders)[:_ORDERS]]
    return blamed(Violation("\n".join(lines)), next(map(functools.partial(_cause, model), unexplained.dead_ends), ""))


def _cause(model: ReferenceModel, dead_end: DeadEnd) -> str:
    wrong = dead_end.wrong
    return f"{wrong.name}() {deviation(wrong.outcome, model.expected(_state_after(dead_end, model), wrong))}"


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
    state, wrong = _state_after(dead_end, model), dead_end.wrong
    changes = [f"{entry.name} ({entry.client})" for entry in dead_end.order if model.mutates(Call(entry.name))]
    earlier = [f"{len(changes) - _LAST:,} others"] if len(changes) > _LAST else []
    calls = ", ".join([*earlier, *changes[-_LAST:]]) or "no change"
    expected = "; ".join(expectation([model.expected(state, wrong)], wrong, model))
    return f"after {calls}: {wrong.name} ({wrong.client}), {expected}"


def _state_after(dead_end: DeadEnd, model: ReferenceModel) -> ReferenceState:
    state: ReferenceState = dead_end.start
    for entry in dead_end.order:
        state = next(iter(model.step(state, entry)), state)
    return state


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
    same = exactly if alike(*values) else alike
    if same(*values) or not (has_parts or _looks_equal(*values)):
        return []
    found = list(itertools.islice(differences(*values, same=same), _DIFFERENCES + 1))
    return [*found[:_DIFFERENCES], *(["and more"] if len(found) > _DIFFERENCES else [])]


def in_words(value: Any) -> str:
    """Format an argument as it would be written."""
    if shown := _shown(value):
        return short(shown)
    if isinstance(value, Snapshot):
        key = value.key
        return _sample_call("snapshot", samples.snapshot, (key.run_id, key.super_step, key.workflow_id), value, {"key"})
    if type(value) in _SAMPLES:
        sample, first = _SAMPLES[type(value)]
        return _sample_call(sample.__name__, sample, tuple(getattr(value, name) for name in first), value, set(first))
    return short(repr(value))


def differences(expected: Any, seen: Any, path: str = "", *, same: Same = alike) -> Iterator[str]:
    """Yield each place where two plain values differ, with what differs there."""
    ours, theirs = _entries(expected), _entries(seen)
    if type(expected) is not type(seen) or not (ours or theirs):
        yield f"{path or 'it'} is {_both(expected, seen)}"
        return
    if isinstance(expected, list) and len(ours) != len(theirs):
        if max(len(_json(expected)), len(_json(seen))) <= _WIDTH:
            yield f"{path or 'it'} is {_both(expected, seen)}"
            return
        yield f"{path or 'it'} has {len(theirs):,} items, not {len(ours):,}{_first_of(expected, seen, same)}"
        return
    differs = False
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        if key not in theirs:
            yield f"{_join(path, key)} is missing"
        elif key not in ours:
            yield f"{_join(path, key)} is new"
        elif not same(ours[key], theirs[key]):
            yield from differences(ours[key], theirs[key], _join(path, key), same=same)
        else:
            continue
        differs = True
    if not differs:  # in what is not a part
        yield f"{path or 'it'} is {_both(expected, seen)}"


def _first_of(expected: Sequence[Any], seen: Sequence[Any], same: Same) -> str:
    """Return in words where two lists of different lengths begin to differ."""
    pairs = enumerate(zip(expected, seen, strict=False))
    index = next((number for number, pair in pairs if not same(*pair)), min(len(expected), len(seen)))
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
    """Format a value as its contract does, as JSON, if it has one, and else as Python."""
    return _shown(value) or (json.dumps(value, ensure_ascii=False) if is_json(value) else repr(value))
