"""What a store refuses, in every contract: the call raises, and no handle shows a change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_wfstate import CheckpointKey, InvalidId, NotFound, Snapshot, as_sync, samples
from tests.unit.stores.handles import EVERY_BACKEND, Home
from tests.unit.values import BAD_IDS, BAD_TEXT_IDS, NO_JSON, label

Calls = Mapping[str, Callable[[Any, Any], Any]]


@dataclass(frozen=True, slots=True)
class Contract:
    """The calls of one contract by what is wrong with their argument, and what a filled store shows."""

    store: str
    fill: Callable[[Any], Any]
    seen: Callable[[Any], Any]
    by_id: Calls
    by_record: Calls  # with an id that a record accepts as text
    invalid: Calls  # with a value that has no JSON
    wrong: Mapping[str, tuple[Callable[[Any, Any], Any], str, Sequence[Any]]]  # call, expected type, other types


def spoilt(record: Any, path: str, bad: Any) -> Any:
    """Put a value without JSON into a record that was valid when it was made."""
    holder = getattr(record, path)
    if isinstance(holder, list):
        holder.append(bad)
    else:
        holder["bad"] = bad
    return record


def bad_effect(bad: Any, tool_use_id: str = "use-1") -> Any:
    effect = samples.effect(tool_use_id)
    effect.__dict__["completed_at"] = bad
    return effect


def bad_key(**ids: Any) -> CheckpointKey:
    return CheckpointKey.model_construct(**{"workflow_id": "wf", "run_id": "run-1", "super_step": 0, **ids})


def fill_runs(store: Any) -> None:
    store.create_run(samples.run())
    store.upsert_step("run-1", samples.step())


def fill_paused(store: Any) -> None:
    store.save(samples.paused("run-1"))
    store.save(samples.paused("claimed"))
    store.claim("claimed")


def key_calls(part: str) -> dict[str, Callable[[Any, Any], Any]]:
    return {
        f"load by {part}": lambda store, bad: store.load(bad_key(**{part: bad})),
        f"fork by {part}": lambda store, bad: store.fork(bad_key(**{part: bad}), {}),
        f"save by {part}": lambda store, bad: store.save(
            Snapshot(key=bad_key(**{part: bad}), values={}, timestamp_ms=0)
        ),
    }


CONTRACTS = [
    Contract(
        "EffectStore",
        fill=lambda store: store.save_checkpoint(samples.checkpoint()),
        seen=lambda store: store.load_checkpoint("task-1"),
        by_id={
            "load": lambda store, bad: store.load_checkpoint(bad),
            "mark of task": lambda store, bad: store.mark_step_complete(bad, "use-1", samples.effect("use-1")),
            "mark of tool call": lambda store, bad: store.mark_step_complete("task-1", bad, samples.effect("use-1")),
            "delete": lambda store, bad: store.delete_checkpoint(bad),
        },
        by_record={
            "save": lambda store, bad: store.save_checkpoint(samples.checkpoint(bad)),
            "mark": lambda store, bad: store.mark_step_complete("task-1", bad, samples.effect(bad)),
        },
        invalid={
            "save": lambda store, bad: store.save_checkpoint(
                spoilt(samples.checkpoint(agent_id="new"), "side_effects_log", bad_effect(bad))
            ),
            "mark": lambda store, bad: store.mark_step_complete("task-1", "use-1", bad_effect(bad)),
        },
        wrong={
            "save": (lambda store, bad: store.save_checkpoint(bad), "WorkflowCheckpoint", [samples.effect()]),
            "mark": (
                lambda store, bad: store.mark_step_complete("task-1", "use-1", bad),
                "SideEffectRecord",
                [samples.step()],
            ),
        },
    ),
    Contract(
        "PausedStore",
        fill=fill_paused,
        seen=lambda store: (store.list(), store.load("run-1")),
        by_id={
            "load": lambda store, bad: store.load(bad),
            "claim": lambda store, bad: store.claim(bad),
            "complete": lambda store, bad: store.complete(bad),
            "remove": lambda store, bad: store.remove(bad),
        },
        by_record={"save": lambda store, bad: store.save(samples.paused(bad))},
        invalid={"save": lambda store, bad: store.save(spoilt(samples.paused(iterations=2), "stage_results", bad))},
        wrong={"save": (lambda store, bad: store.save(bad), "PausedWorkflow", [samples.resume_point()])},
    ),
    Contract(
        "ResumeStore",
        fill=lambda store: store.save(samples.resume_point()),
        seen=lambda store: store.load("run-1"),
        by_id={"load": lambda store, bad: store.load(bad), "delete": lambda store, bad: store.delete(bad)},
        by_record={"save": lambda store, bad: store.save(samples.resume_point(bad))},
        invalid={"save": lambda store, bad: store.save(spoilt(samples.resume_point(step=9), "scope_snapshot", bad))},
        wrong={"save": (lambda store, bad: store.save(bad), "ResumePoint", [samples.paused()])},
    ),
    Contract(
        "SnapshotStore",
        fill=lambda store: store.save(samples.snapshot("run-1", 0)),
        seen=lambda store: (store.list("wf", "run-1"), store.latest("wf", "run-1")),
        by_id={
            "latest of workflow": lambda store, bad: store.latest(bad, "run-1"),
            "latest of run": lambda store, bad: store.latest("wf", bad),
            "list of workflow": lambda store, bad: store.list(bad, "run-1"),
            "list of run": lambda store, bad: store.list("wf", bad),
        },
        by_record=key_calls("workflow_id") | key_calls("run_id"),
        invalid={
            "save": lambda store, bad: store.save(spoilt(samples.snapshot("run-1", 0, label="new"), "values", bad)),
            "fork": lambda store, bad: store.fork(samples.key("run-1", 0), {"bad": bad}),
            "key of load": lambda store, _: store.load(bad_key(super_step=-1)),
            "key of fork": lambda store, _: store.fork(bad_key(super_step=1.5)),
        },
        wrong={
            "save": (lambda store, bad: store.save(bad), "Snapshot", [samples.key()]),
            "load": (lambda store, bad: store.load(bad), "CheckpointKey", ["run-1", samples.snapshot()]),
            "fork": (lambda store, bad: store.fork(bad), "CheckpointKey", ["run-1", samples.snapshot()]),
        },
    ),
    Contract(
        "RunStore",
        fill=fill_runs,
        seen=lambda store: (store.get_run("run-1"), store.list_steps("run-1")),
        by_id={
            "get run": lambda store, bad: store.get_run(bad),
            "update context": lambda store, bad: store.update_context(bad, {}),
            "delete run": lambda store, bad: store.delete_run(bad),
            "upsert step": lambda store, bad: store.upsert_step(bad, samples.step()),
            "get step of run": lambda store, bad: store.get_step(bad, "fetch"),
            "get step": lambda store, bad: store.get_step("run-1", bad),
            "list steps": lambda store, bad: store.list_steps(bad),
        },
        by_record={
            "create run": lambda store, bad: store.create_run(samples.run(bad)),
            "upsert step": lambda store, bad: store.upsert_step("run-1", samples.step(bad)),
        },
        invalid={
            "create run": lambda store, bad: store.create_run(spoilt(samples.run(agent_id="new"), "context", bad)),
            "update context": lambda store, bad: store.update_context("run-1", {"bad": bad}),
            "replace step": lambda store, bad: store.upsert_step("run-1", spoilt(samples.step(), "result", bad)),
            "add step": lambda store, bad: store.upsert_step("run-1", spoilt(samples.step("new"), "result", bad)),
        },
        wrong={
            "create run": (lambda store, bad: store.create_run(bad), "WorkflowExecutionState", [samples.step()]),
            "upsert step": (lambda store, bad: store.upsert_step("run-1", bad), "WorkflowStepState", [samples.run()]),
        },
    ),
]


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(contract, call, id=f"{contract.store}-{name}")
        for contract in CONTRACTS
        for name, call in getattr(contract, kind).items()
    ]


def refused(home: Home, contract: Contract, error: Any, match: str | None, call: Callable[[Any], Any]) -> None:
    """Make a call on an empty store and on a filled one: it raises, and no handle shows a change."""
    with as_sync(home.open()) as store, as_sync(home.open()) as other:
        for fill, errors in ((lambda _: None, (error, NotFound)), (contract.fill, error)):
            fill(store)
            before = contract.seen(store)
            with pytest.raises(errors, match=match):
                call(store)
            assert contract.seen(store) == contract.seen(other) == before
        if contract.store == "PausedStore":
            assert store.recover_orphaned() == 1  # the claim is still there


each_backend = pytest.mark.parametrize("backend", EVERY_BACKEND)


@each_backend
@pytest.mark.parametrize("bad", BAD_IDS, ids=label)
@pytest.mark.parametrize(("contract", "call"), cases("by_id"))
def test_an_invalid_id_is_refused(tmp_path: Path, backend: str, contract: Contract, call: Any, bad: Any) -> None:
    match = r"^(task|tool use|run|step|workflow) id .* An id is text of 1 to 1,024 characters"
    refused(Home(backend, contract.store, tmp_path), contract, InvalidId, match, lambda store: call(store, bad))


@each_backend
@pytest.mark.parametrize("bad", BAD_TEXT_IDS, ids=label)
@pytest.mark.parametrize(("contract", "call"), cases("by_record"))
def test_a_record_with_an_invalid_id_is_refused(
    tmp_path: Path, backend: str, contract: Contract, call: Any, bad: str
) -> None:
    match = r"^(task|tool use|run|step|workflow) id "
    refused(Home(backend, contract.store, tmp_path), contract, InvalidId, match, lambda store: call(store, bad))


@each_backend
@pytest.mark.parametrize("bad", NO_JSON.values(), ids=list(NO_JSON))
@pytest.mark.parametrize(("contract", "call"), cases("invalid"))
def test_a_value_without_json_is_refused(tmp_path: Path, backend: str, contract: Contract, call: Any, bad: Any) -> None:
    refused(Home(backend, contract.store, tmp_path), contract, ValidationError, None, lambda store: call(store, bad))


@each_backend
@pytest.mark.parametrize(("contract", "case"), cases("wrong"))
def test_a_record_of_another_type_is_refused(tmp_path: Path, backend: str, contract: Contract, case: Any) -> None:
    call, expected, others = case
    for number, bad in enumerate([None, {"run_id": "run-1"}, *others]):
        (tmp_path / str(number)).mkdir()
        home = Home(backend, contract.store, tmp_path / str(number))
        refused(home, contract, TypeError, rf"^expected a {expected}, got ", functools.partial(call, bad=bad))
