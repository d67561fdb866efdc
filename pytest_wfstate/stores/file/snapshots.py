"""The snapshots contract, in a folder: one journal per workflow and run."""

from __future__ import annotations

import builtins
import os
from typing import Self, Unpack

from pydantic import Field

from pytest_wfstate.contracts.clock import milliseconds, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Record, Text
from pytest_wfstate.contracts.snapshots import (
    CheckpointKey,
    CheckpointMeta,
    Edits,
    RunId,
    Snapshot,
    SnapshotStore,
    check_key,
    check_snapshot,
    new_run_id,
    no_source,
)
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.file.base import FileSettings, FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.file.journal import Journal


class _SnapshotsDocument(Record):
    """A journal's document: the snapshots of one run. A change to it is one more snapshot."""

    workflow_id: Text
    run_id: Text
    snapshots: dict[int, Snapshot] = Field(default_factory=dict)

    @classmethod
    def blank(cls, *ids: str) -> Self:
        workflow_id, run_id = ids
        return cls(workflow_id=workflow_id, run_id=run_id)

    def ids(self) -> tuple[str, ...]:
        return (self.workflow_id, self.run_id)

    def apply(self, change: bytes | str) -> None:
        snapshot = Snapshot.model_validate_json(change)
        self.snapshots[snapshot.key.super_step] = snapshot

    def size(self) -> int:
        return len(self.snapshots)


class FileSnapshotStore(FileStore, SnapshotStore):
    """Keeps the snapshots of workflow `wf` and run `run-1` in `wf.run-1.journal`."""

    contract = "snapshots"

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._runs = Journal(self._folder, ".journal", _SnapshotsDocument)

    def close(self) -> None:
        super().close()
        self._runs.forget()

    @threaded
    def save(self, snapshot: Snapshot) -> None:
        snapshot = check_snapshot(snapshot)
        self._save(snapshot.key, snapshot)

    @threaded
    def load(self, key: CheckpointKey) -> Snapshot | None:
        key = check_key(key)
        with self._runs.view(key.workflow_id, key.run_id) as run:
            snapshot = None if run is None else run.snapshots.get(key.super_step)
            return None if snapshot is None else Snapshot.checked(snapshot)

    @threaded
    def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        with self._runs.view(check_id("workflow id", workflow_id), check_id("run id", run_id)) as run:
            return Snapshot.checked(run.snapshots[max(run.snapshots)]) if run and run.snapshots else None

    @threaded
    def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        with self._runs.view(check_id("workflow id", workflow_id), check_id("run id", run_id)) as run:
            return [] if run is None else [run.snapshots[step].meta() for step in sorted(run.snapshots)]

    @threaded
    def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        key = check_key(source)
        edits = dict(edits)
        if not self._folder.exists():
            raise no_source(key)
        # Make the source durable first: its writer may have died before the fsync, and a fork must not outlive it.
        with self._runs.edit(key.workflow_id, key.run_id) as edit:
            snapshot = edit.document.snapshots.get(key.super_step)
            if snapshot is None:
                raise no_source(key)
            fork = snapshot.forked(new_run_id(), edits, milliseconds(now()))
        self._save(fork.key, fork)
        return fork.key.run_id

    def _save(self, key: CheckpointKey, snapshot: Snapshot) -> None:
        with self._runs.edit(key.workflow_id, key.run_id) as edit:
            edit.apply(snapshot)
