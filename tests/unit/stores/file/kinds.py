"""The five file stores behind one interface, for tests of what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_wfstate import (
    FileEffectStore,
    FilePausedStore,
    FileResumeStore,
    FileRunStore,
    FileSnapshotStore,
    as_sync,
    samples,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a test puts items into a record of one contract, and sees what is in it."""

    name: str
    store: Callable[..., Any]
    change: Callable[[Any, str, int], Any]  # put item n into the record, which is made if need be
    load: Callable[[Any, str], Any]
    items: Callable[[Any], list[int]]  # of a record that was loaded
    delete: Callable[[Any, str], Any] | None
    save: Callable[[Any, str, int], Any] | None  # put a record with item n alone in the place of what is there
    file: str  # of record "a"

    def open(self, home: Path, durability: str = "process") -> Any:
        """Open a handle whose methods block."""
        return as_sync(self.store(home, durability))

    def __str__(self) -> str:
        return self.name


def _mark(store: Any, id_: str, n: int) -> None:
    store.mark_step_complete(id_, f"use-{n}", samples.effect(f"use-{n}"))


def _checkpoint(store: Any, id_: str, n: int) -> None:
    effect = samples.effect(f"use-{n}")
    store.save_checkpoint(samples.checkpoint(id_, side_effects_log=[effect], completed_tool_ids={effect.tool_use_id}))


EFFECTS = Kind(
    "effects",
    FileEffectStore,
    change=_mark,
    load=lambda store, id_: store.load_checkpoint(id_),
    items=lambda record: [int(effect.tool_use_id.removeprefix("use-")) for effect in record.side_effects_log],
    delete=lambda store, id_: store.delete_checkpoint(id_),
    save=_checkpoint,
    file="a.json",
)
PAUSED = Kind(
    "paused",
    FilePausedStore,
    change=lambda store, id_, n: store.save(samples.paused(id_, iterations=n)),
    load=lambda store, id_: store.load(id_),
    items=lambda record: [record.iterations],
    delete=lambda store, id_: store.remove(id_),
    save=lambda store, id_, n: store.save(samples.paused(id_, iterations=n)),
    file="a.json",
)
RESUME = Kind(
    "resume",
    FileResumeStore,
    change=lambda store, id_, n: store.save(samples.resume_point(id_, step=n)),
    load=lambda store, id_: store.load(id_),
    items=lambda record: [record.step],
    delete=lambda store, id_: store.delete(id_),
    save=lambda store, id_, n: store.save(samples.resume_point(id_, step=n)),
    file="a.json",
)
SNAPSHOTS = Kind(
    "snapshots",
    FileSnapshotStore,
    change=lambda store, id_, n: store.save(samples.snapshot(id_, n)),
    load=lambda store, id_: store.list("wf", id_) or None,
    items=lambda record: [meta.super_step for meta in record],
    delete=None,
    save=None,
    file="wf.a.journal",
)
RUNS = Kind(
    "runs",
    FileRunStore,
    change=lambda store, id_, n: store.upsert_step(id_, samples.step(f"step-{n}")),
    load=lambda store, id_: store.list_steps(id_) or None,
    items=lambda record: [int(step.step_id.removeprefix("step-")) for step in record],
    delete=lambda store, id_: store.delete_run(id_),
    save=None,
    file="a.journal",
)

MARKER = ".wfstate"
GATE = ".wfstate.gate"
KINDS = [EFFECTS, PAUSED, RESUME, SNAPSHOTS, RUNS]
JOURNALS = [EFFECTS, SNAPSHOTS, RUNS]
WHOLE_FILES = [PAUSED, RESUME]


def contents(home: Path) -> dict[str, bytes]:
    """Read every file of a store but its marker and its gate."""
    return {path.name: path.read_bytes() for path in home.iterdir() if path.name not in (MARKER, GATE)}
