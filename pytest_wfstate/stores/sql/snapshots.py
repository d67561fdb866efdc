"""The snapshots contract, in a database: a row a snapshot."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Column, Connection, Engine

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
    new_run_id,
    no_source,
)
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import _rows
from pytest_wfstate.stores.sql._rows import Row, of
from pytest_wfstate.stores.sql._schema import Json, Key, key
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse


class _Statements(Statements):
    contract = "snapshots"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.snapshots = self.schema.table(
            "snapshots",
            Column("workflow", Key, primary_key=True),
            Column("run", Key, primary_key=True),
            Column("super_step", Key, primary_key=True),
            Column("meta", Json, nullable=False),
            Column("record", Json, nullable=False),
        )
        run, order = ("workflow", "run"), self.snapshots.c.super_step
        self.put = _rows.put(insert(self.snapshots), "meta", "record")
        self.get = _rows.get(self.snapshots, "record")
        self.latest = _rows.get(self.snapshots, "super_step", "record", by=run).order_by(order.desc()).limit(1)
        self.list = _rows.get(self.snapshots, "super_step", "meta", by=run).order_by(order)


class SqlSnapshotStore(SqlStore[_Statements], SnapshotStore):
    """Keeps snapshots in the table `wfstate_snapshots`, beside each its line in a listing. `new_id` names forks."""

    statements = _Statements

    def __init__(
        self,
        where: str | URL | Engine,
        *,
        prefix: str = "wfstate",
        clock: Clock = now,
        new_id: Callable[[], RunId] = new_run_id,
    ) -> None:
        super().__init__(where, prefix=prefix, clock=clock)
        self._new_id = new_id

    @threaded
    def save(self, snapshot: Snapshot) -> None:
        snapshot = Snapshot.checked(snapshot)
        check_key(snapshot.key)
        self._database.write(lambda connection: self._save(connection, snapshot))

    @threaded
    def load(self, key: CheckpointKey) -> Snapshot | None:
        row = _row(check_key(key))
        text = self._database.read(lambda connection: connection.execute(self._sql.get, of(row)).scalar())
        return None if text is None else self._parse(text, row)

    @threaded
    def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        run = _run(workflow_id, run_id)
        found = self._database.read(lambda connection: connection.execute(self._sql.latest, of(run)).first())
        return None if found is None else self._parse(found.record, {**run, "super_step": found.super_step})

    @threaded
    def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        run = _run(workflow_id, run_id)
        found = self._database.read(lambda connection: connection.execute(self._sql.list, of(run)).all())
        return [
            parse(CheckpointMeta, one.meta, self._sql.snapshots, {**run, "super_step": one.super_step}, _row)
            for one in found
        ]

    @threaded
    def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        source = check_key(source)
        edits = dict(edits)  # an attempt that is made again would find an iterator at its end
        return self._database.write(lambda connection: self._fork(connection, source, edits))

    def _fork(self, connection: Connection, source: CheckpointKey, edits: Edits) -> RunId:
        text = connection.execute(self._sql.get, of(_row(source))).scalar()
        if text is None:
            raise no_source(source)
        snapshot = self._parse(text, _row(source))
        fork = snapshot.forked(self._new_id(), edits, milliseconds(self._clock()))
        self._save(connection, fork)
        return fork.key.run_id

    def _save(self, connection: Connection, snapshot: Snapshot) -> None:
        texts = {"meta": snapshot.meta().to_json(), "record": snapshot.to_json()}
        connection.execute(self._sql.put, {**_row(snapshot.key), **texts})

    def _parse(self, text: Any, row: Row) -> Snapshot:
        return parse(Snapshot, text, self._sql.snapshots, row, lambda snapshot: _row(snapshot.key))


def _run(workflow_id: str, run_id: RunId) -> dict[str, str]:
    return {"workflow": key(check_id("workflow id", workflow_id)), "run": key(check_id("run id", run_id))}


def _row(one: CheckpointKey | CheckpointMeta) -> dict[str, str]:
    # Neither database has integers up to 2**64 - 1. As text of one length they sort alike.
    return {"workflow": key(one.workflow_id), "run": key(one.run_id), "super_step": f"{one.super_step:020}"}
