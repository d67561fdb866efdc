"""The snapshots contract, in memory."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from pytest_wfstate.contracts.clock import Clock, milliseconds, now
from pytest_wfstate.contracts.ids import check_id
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
from pytest_wfstate.stores.memory.base import MemoryStore


class MemorySnapshotStore(MemoryStore, SnapshotStore):
    """Keeps snapshots in memory. `new_id` generates the ids of forks."""

    def __init__(self, *, clock: Clock = now, new_id: Callable[[], RunId] = new_run_id) -> None:
        super().__init__(clock=clock)
        self._new_id = new_id
        self._snapshots: dict[tuple[str, RunId], dict[int, str]] = {}

    async def save(self, snapshot: Snapshot) -> None:
        snapshot = check_snapshot(snapshot)
        with self._lock:
            self._put(snapshot)

    async def load(self, key: CheckpointKey) -> Snapshot | None:
        key = check_key(key)
        with self._lock:
            return self._get(key)

    async def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        with self._lock:
            run = self._run(workflow_id, run_id)
            return _read(run[max(run)]) if run else None

    async def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        with self._lock:
            run = self._run(workflow_id, run_id)
            return [_read(run[step]).meta() for step in sorted(run)]

    async def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        key = check_key(source)
        edits = dict(edits)
        with self._lock:
            snapshot = self._get(key)
            if snapshot is None:
                raise no_source(key)
            fork = snapshot.forked(self._new_id(), edits, milliseconds(self._clock()))
            self._put(fork)
        return fork.key.run_id

    def _run(self, workflow_id: str, run_id: RunId) -> dict[int, str]:
        return self._snapshots.get((check_id("workflow id", workflow_id), check_id("run id", run_id)), {})

    def _get(self, key: CheckpointKey) -> Snapshot | None:
        text = self._run(key.workflow_id, key.run_id).get(key.super_step)
        return None if text is None else _read(text)

    def _put(self, snapshot: Snapshot) -> None:
        key = snapshot.key
        run = self._snapshots.setdefault((key.workflow_id, key.run_id), {})
        run[key.super_step] = snapshot.to_json()


def _read(text: str) -> Snapshot:
    return Snapshot.from_json(text, "memory")
