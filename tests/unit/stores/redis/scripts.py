"""Calls of every method of every contract, their results in memory, and stores on a server to make them on."""

from __future__ import annotations

import dataclasses
import datetime
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest_wfstate
from pytest_wfstate import Server, WorkflowCheckpoint, samples
from tests.unit.stores.handles import outcome

MOMENT = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)

Call = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A contract, with calls about one id that use each of its methods."""

    protocol: str
    calls: Callable[[str], Sequence[Call]]

    def __str__(self) -> str:
        return self.protocol

    def memory(self) -> Any:
        return getattr(pytest_wfstate, f"Memory{self.protocol}")(clock=lambda: MOMENT)

    def open(self, url_or_client: Any, prefix: str | None = None) -> Any:
        """Open a store, by default one with a new prefix."""
        store = getattr(pytest_wfstate, f"Redis{self.protocol}")
        return store(url_or_client, prefix or f"p{uuid.uuid4().hex}", clock=lambda: MOMENT)

    def expected(self, one: str) -> list[Any]:
        return outcomes(self.memory(), self.calls(one))


def outcomes(store: Any, calls: Sequence[Call]) -> list[Any]:
    """Make calls, and return the outcome of each, except for ids that the store generated."""
    return [_known(outcome(store, *call)) for call in calls]


def _known(came: Any) -> Any:
    return "a new run" if isinstance(came, str) and re.fullmatch(r"run-[0-9a-f-]{36}", came) else came


def prefix_of(store: Any) -> str:
    return str(store._prefix)


def direct(server: Server) -> Any:
    """Connect to a server past all stores."""
    import redis

    return redis.Redis.from_url(server.url)


def large_checkpoint(effects: int = 20_000) -> WorkflowCheckpoint:
    """Return a checkpoint of several megabytes, with more effects than Lua can unpack at once."""
    ids = [f"use-{number}" for number in range(effects)]
    return samples.checkpoint("a", completed_tool_ids=set(ids), side_effects_log=[samples.effect(id_) for id_ in ids])


def dump(client: Any, store: Any) -> dict[bytes, bytes]:
    """Return everything a store keeps, except for its receipts and for runs whose ids it generated."""
    return {key: client.dump(key) for key in keys_of(client, store) if b"receipt" not in key}


def keys_of(client: Any, store: Any) -> list[bytes]:
    """Return the keys of a store's records and receipts, except for runs whose ids it generated."""
    keys = client.keys(f"*{store._prefix}*")
    return [key for key in keys if not key.endswith(b":format") and b"{wf:run-" not in key]


def _effects(one: str) -> list[Call]:
    load, first, other = ("load_checkpoint", one), samples.effect("use-1"), samples.effect("use-2", target=None)
    strange = samples.checkpoint(one, completed_tool_ids={"", "\0", 'quote"\\', "🙂", "\x7f\x01"})
    return [
        load,
        ("mark_step_complete", one, "use-1", first),
        ("mark_step_complete", one, "use-1", first),
        load,
        ("save_checkpoint", strange),
        load,
        ("mark_step_complete", one, "use-2", other),
        ("mark_step_complete", one, "use-1", first),
        load,
        ("save_checkpoint", samples.checkpoint(one, step_index=2**32 - 2)),
        ("mark_step_complete", one, "use-1", first),
        ("mark_step_complete", one, "use-2", other),
        load,
        ("delete_checkpoint", one),
        ("delete_checkpoint", one),
        load,
    ]


def _paused(one: str) -> list[Call]:
    look: list[Call] = [("load", one), ("list",)]
    return [
        *look,
        ("claim", one),
        ("save", samples.paused(one, iterations=1)),
        *look,
        ("claim", one),
        ("claim", one),
        *look,
        ("recover_orphaned", 10.0),
        ("recover_orphaned",),
        *look,
        ("claim", one),
        ("save", samples.paused(one, iterations=2)),
        ("recover_orphaned",),
        *look,
        ("claim", one),
        ("complete", one),
        ("recover_orphaned",),
        ("save", samples.paused(one, iterations=3)),
        ("remove", one),
        ("remove", one),
        *look,
    ]


def _resume(one: str) -> list[Call]:
    load = ("load", one)
    return [
        load,
        ("save", samples.resume_point(one, step=1)),
        load,
        ("save", samples.resume_point(one, step=2)),
        load,
        ("delete", one),
        ("delete", one),
        load,
    ]


def _runs(one: str) -> list[Call]:
    look: list[Call] = [("get_run", one), ("list_steps", one), ("get_step", one, "b")]
    return [
        *look,
        ("update_context", one, {}),
        ("upsert_step", one, samples.step("b", result=1)),
        ("upsert_step", one, samples.step("a", result=2)),
        ("create_run", samples.run(one)),
        *look,
        ("update_context", one, {"n": [0]}),
        ("upsert_step", one, samples.step("b", result=3)),
        *look,
        ("delete_run", one),
        ("delete_run", one),
        *look,
    ]


def _snapshots(one: str) -> list[Call]:
    steps = [10, 2, 2**53 + 1, 2**53, 2**64 - 1]
    look: list[Call] = [("latest", "wf", one), ("list", "wf", one), ("load", samples.key(one, 2**53 + 1))]
    return [
        *look,
        ("fork", samples.key(one, 2)),
        *(call for step in steps for call in [("save", samples.snapshot(one, step)), *look]),
        ("save", samples.snapshot(one, 2, label="again")),
        *look,
        ("fork", samples.key(one, 2), {"n": 1}),
    ]


EFFECTS = Kind("EffectStore", _effects)
PAUSED = Kind("PausedStore", _paused)
RESUME = Kind("ResumeStore", _resume)
RUNS = Kind("RunStore", _runs)
SNAPSHOTS = Kind("SnapshotStore", _snapshots)
KINDS = [EFFECTS, PAUSED, RESUME, RUNS, SNAPSHOTS]
