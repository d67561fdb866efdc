"""What a worker process does: `python -m tests.unit.stores.sql.workers`.

Each line that it reads is a job. It says what it was acknowledged, a line each, and then `done`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Any

from pytest_wfstate import (
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    as_sync,
    samples,
)
from tests.unit.stores.sql.places import Place

# Each store, and a call that only looks.
LOOKS: list[tuple[Any, str, tuple[str, ...]]] = [
    (SqlEffectStore, "load_checkpoint", ("a",)),
    (SqlPausedStore, "list", ()),
    (SqlResumeStore, "load", ("a",)),
    (SqlSnapshotStore, "list", ("wf", "a")),
    (SqlRunStore, "list_steps", ("a",)),
]


def say(word: object) -> None:
    print(word, flush=True)  # noqa: T201


def begin(place: Place, number: str) -> None:
    """Use each store of a place, before or while others do."""
    for kind, look, args in LOOKS:
        with as_sync(place.open(kind)) as store:
            getattr(store, look)(*args)
    with place.open(SqlResumeStore) as store:
        store.save(samples.resume_point(f"run-{number}"))
    say(number)


def mark(place: Place, first: str, count: str) -> None:
    """Mark `count` effects of one task, and report each."""
    store = as_sync(place.open(SqlEffectStore))
    for n in range(int(first), int(first) + int(count)):
        store.mark_step_complete("a", f"use-{n}", samples.effect(f"use-{n}"))
        say(n)


def step(place: Place, first: str, count: str) -> None:
    """Insert `count` steps of one run, and report each."""
    store = as_sync(place.open(SqlRunStore))
    for n in range(int(first), int(first) + int(count)):
        store.upsert_step("a", samples.step(f"step-{n}"))
        say(n)


def claim(place: Place, runs: str) -> None:
    """Claim every run of run-0 to run-<runs>, and complete and report those that were claimed."""
    store = place.open(SqlPausedStore)
    for n in range(int(runs)):
        if store.claim(f"run-{n}") is not None:
            say(n)
            store.complete(f"run-{n}")


JOBS: dict[str, Callable[..., None]] = {"begin": begin, "mark": mark, "step": step, "claim": claim}

if __name__ == "__main__":
    say("done")
    for line in sys.stdin:
        job, url, prefix, *args = shlex.split(line)
        JOBS[job](Place(url, prefix), *args)
        say("done")
