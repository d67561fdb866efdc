"""Which calls of a store wait for which others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import LockTimeout, samples
from pytest_wfstate.stores.file.lock import Kind as LockKind
from pytest_wfstate.stores.file.lock import locked
from tests.unit.stores.file.kinds import EFFECTS, KINDS, PAUSED, RUNS, SNAPSHOTS, Kind, contents

Act = Callable[[Any], Any]

CHANGES: list[tuple[str, Kind, Act]] = [
    *((f"{kind} change", kind, lambda store, kind=kind: kind.change(store, "a", 2)) for kind in KINDS),
    *((f"{kind} delete", kind, lambda store, kind=kind: kind.delete(store, "a")) for kind in KINDS if kind.delete),
    ("checkpoint", EFFECTS, lambda store: store.save_checkpoint(samples.checkpoint("a"))),
    ("repeated mark", EFFECTS, lambda store: EFFECTS.change(store, "a", 1)),
    ("claim", PAUSED, lambda store: store.claim("a")),
    ("complete", PAUSED, lambda store: store.complete("a")),
    ("recover", PAUSED, lambda store: store.recover_orphaned()),
    ("fork", SNAPSHOTS, lambda store: store.fork(samples.key("a", 1))),
    ("create_run", RUNS, lambda store: store.create_run(samples.run("a"))),
    ("update_context", RUNS, lambda store: store.update_context("a", {})),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes who would have to wait for a lock raise LockTimeout at once."""
    monkeypatch.setattr(time, "sleep", lambda _: None)


def open_with_item(kind: Kind, home: Path) -> Any:
    store = kind.open(home)
    kind.change(store, "a", 1)
    return store


@pytest.mark.parametrize(("kind", "act"), [change[1:] for change in CHANGES], ids=[change[0] for change in CHANGES])
def test_a_change_waits_for_all_other_readers_and_writers(tmp_path: Path, kind: Kind, act: Act) -> None:
    store = open_with_item(kind, tmp_path)
    before = contents(tmp_path)

    with locked(tmp_path, LockKind.SHARED), pytest.raises(LockTimeout):
        act(store)

    assert contents(tmp_path) == before


def test_a_fork_reads_its_edits_without_the_lock(tmp_path: Path) -> None:
    store, other = open_with_item(SNAPSHOTS, tmp_path), SNAPSHOTS.open(tmp_path)

    def edits() -> Iterator[tuple[str, int]]:
        SNAPSHOTS.change(other, "b", 1)
        yield "edited", 1

    run_id = store.fork(samples.key("a", 1), edits())

    assert store.latest("wf", run_id).values["edited"] == 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_loading_does_not_wait(tmp_path: Path, kind: Kind) -> None:
    store = open_with_item(kind, tmp_path)

    with locked(tmp_path, LockKind.EXCLUSIVE):
        assert kind.items(kind.load(store, "a")) == [1]
        assert kind.items(kind.load(kind.open(tmp_path), "a")) == [1]


def test_listing_paused_runs_waits_for_a_change_to_end_and_not_for_another_listing(tmp_path: Path) -> None:
    store = open_with_item(PAUSED, tmp_path)

    with locked(tmp_path, LockKind.EXCLUSIVE), pytest.raises(LockTimeout):
        store.list()
    with locked(tmp_path, LockKind.SHARED):
        assert store.list() == ["a"]
