"""Snapshots: the state of a graph after every super-step, to go back to or to fork from."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import I64, U64, Json, Record, Text
from pytest_wfstate.errors import NotFound

__all__ = ["CheckpointKey", "CheckpointMeta", "Edits", "RunId", "Snapshot", "SnapshotStore"]

RunId = str
Edits = Mapping[str, Any] | Iterable[tuple[str, Any]]


class CheckpointKey(Record):
    """Which snapshot: the workflow, the run, and the super-step after which it was taken."""

    workflow_id: Text
    run_id: Text
    super_step: U64


class CheckpointMeta(Record):
    """A snapshot without its values, for listings."""

    workflow_id: Text
    run_id: Text
    super_step: U64
    timestamp_ms: I64


class Snapshot(Record):
    """The values of a graph after one super-step."""

    key: CheckpointKey
    values: dict[Text, Json]
    label: Text = ""
    timestamp_ms: I64

    def meta(self) -> CheckpointMeta:
        """Return this snapshot's entry in a listing."""
        key = self.key
        return CheckpointMeta(
            workflow_id=key.workflow_id,
            run_id=key.run_id,
            super_step=key.super_step,
            timestamp_ms=self.timestamp_ms,
        )

    def forked(self, run_id: RunId, edits: Edits, timestamp_ms: int) -> Snapshot:
        """Return an edited copy of this snapshot in the run `run_id`."""
        return Snapshot(
            key=self.key.model_copy(update={"run_id": run_id}),
            values={**self.values, **dict(edits)},
            label=f"fork-of:{self.key.run_id}",
            timestamp_ms=timestamp_ms,
        )


def new_run_id() -> RunId:
    """Generate the id of a new run."""
    return f"run-{uuid.uuid4()}"


def check_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return a copy of `snapshot`, validated.

    Raises:
        InvalidId: one of its ids is invalid.

    """
    snapshot = Snapshot.checked(snapshot)
    _check_ids(snapshot.key)
    return snapshot


def check_key(key: CheckpointKey) -> CheckpointKey:
    """Return a copy of `key`, validated.

    Raises:
        InvalidId: one of its ids is invalid.

    """
    key = CheckpointKey.checked(key)
    _check_ids(key)
    return key


def _check_ids(key: CheckpointKey) -> None:
    check_id("workflow id", key.workflow_id)
    check_id("run id", key.run_id)


def no_source(key: CheckpointKey) -> NotFound:
    """Return the error for forking a missing snapshot."""
    return NotFound(
        f"fork: there is no snapshot {key.run_id}#{key.super_step} of workflow {key.workflow_id!r}. "
        "Nothing was forked; list(workflow_id, run_id) shows which super-steps exist."
    )


@runtime_checkable
class SnapshotStore(Protocol):
    """Keeps one `Snapshot` per workflow, run and super-step."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store `snapshot`, replacing any with the same key."""

    async def load(self, key: CheckpointKey) -> Snapshot | None:
        """Return the snapshot with this key, or None if there is none."""

    async def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        """Return the run's snapshot with the highest super-step, or None if it has none."""

    async def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        """Return the metadata of the run's snapshots, ordered by super-step."""

    async def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        """Copy one snapshot, with `edits` to its values, into a new run, and return that run's id.

        The copy has the same super-step and the label `fork-of:<run id>`.

        Raises:
            NotFound: there is no snapshot with the key `source`.

        """
