"""The snapshots contract, in a database: a row per snapshot."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Column, Engine

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
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse, place
from pytest_wfstate.stores.sql.rows import Row, of
from pytest_wfstate.stores.sql.schema import Json, Key, key


class _SnapshotStatements(Statements):
    contract = "snapshots"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.snapshots = self.schema.table(
            "snapshots",
            Column("workflow", Key, primary_key=True),
            Column("run", Key, primary_key=True),
            Column("super_step", Key, primary_key=True),
            Column("timestamp_ms", Json, nullable=False),
            Column("record", Json, nullable=False),
        )
        run, order = ("workflow", "run"), self.snapshots.c.super_step
        self.put = self._statement(rows.put(insert(self.snapshots), "timestamp_ms", "record"))
        self.get = self._statement(rows.get(self.snapshots, "record"))
        latest = rows.get(self.snapshots, "super_step", "record", by=run).order_by(order.desc())
        self.latest = self._statement(latest.limit(1))
        self.list = self._statement(rows.get(self.snapshots, "super_step", "timestamp_ms", by=run).order_by(order))


class SqlSnapshotStore(SqlStore[_SnapshotStatements], SnapshotStore):
    """Keeps snapshots in the table `wfstate_snapshots`. `new_id` names forks."""

    statements = _SnapshotStatements

    def __init__(
        self,
        where: str | URL | Engine,
        *,
        prefix: str = "wfstate",
        clock: Clock = now,
        mode: int | None = None,
        new_id: Callable[[], RunId] = new_run_id,
    ) -> None:
        super().__init__(where, prefix=prefix, clock=clock, mode=mode)
        self._new_id = new_id

    @threaded
    def save(self, snapshot: Snapshot) -> None:
        snapshot = check_snapshot(snapshot)
        self._database.change(self._sql.put, _whole(snapshot))

    @threaded
    def load(self, key: CheckpointKey) -> Snapshot | None:
        row = _row(check_key(key))
        text = self._database.ask(self._sql.get, of(row)).value
        return None if text is None else self._parse(text, row)

    @threaded
    def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        run = _run(workflow_id, run_id)
        latest = self._database.ask(self._sql.latest, of(run)).rows
        return self._parse(latest[0][1], {**run, "super_step": latest[0][0]}) if latest else None

    @threaded
    def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        run = _run(workflow_id, run_id)
        listed = self._database.ask(self._sql.list, of(run)).rows
        return [self._meta(workflow_id, run_id, *row) for row in listed]

    def _meta(self, workflow_id: str, run_id: RunId, super_step: str, timestamp_ms: Any) -> CheckpointMeta:
        try:
            taken = int(timestamp_ms)
            return CheckpointMeta(
                workflow_id=workflow_id, run_id=run_id, super_step=int(super_step), timestamp_ms=taken
            )
        except ValueError:
            row = {**_run(workflow_id, run_id), "super_step": super_step}
            where = place(self._sql.snapshots, row)
            raise CorruptRecord(where, f"its time is {timestamp_ms!r}, not a number of milliseconds") from None

    @threaded
    def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        source = check_key(source)
        edits = dict(edits)
        text = self._database.ask(self._sql.get, of(_row(source))).value
        if text is None:
            raise no_source(source)
        # Its source may change meanwhile. Nobody knows the new run yet, so nobody can tell.
        fork = self._parse(text, _row(source)).forked(self._new_id(), edits, milliseconds(self._clock()))
        self._database.change(self._sql.put, _whole(fork))
        return fork.key.run_id

    def _parse(self, text: Any, row: Row) -> Snapshot:
        return parse(Snapshot, text, self._sql.snapshots, row, lambda snapshot: _row(snapshot.key))


def _run(workflow_id: str, run_id: RunId) -> dict[str, str]:
    return {"workflow": key(check_id("workflow id", workflow_id)), "run": key(check_id("run id", run_id))}


def _whole(snapshot: Snapshot) -> dict[str, Any]:
    return {**_row(snapshot.key), "timestamp_ms": str(snapshot.timestamp_ms), "record": snapshot.to_json()}


def _row(of_: CheckpointKey) -> dict[str, str]:
    # Neither database has integers up to 2**64 - 1. Zero-padded text sorts the same way.
    return {"workflow": key(of_.workflow_id), "run": key(of_.run_id), "super_step": f"{of_.super_step:020}"}
