"""The effects contract, in a database: a row a task, a row an id that is done, and a row an effect.

The row of a task holds its checkpoint without ids and effects, so that a mark costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Column, Connection

from pytest_wfstate.contracts.clock import seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Record, Text
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import _rows
from pytest_wfstate.stores.sql._rows import Row, of
from pytest_wfstate.stores.sql._schema import Json, Key, key
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse


class _Done(Record):
    """The id of a tool call that is done."""

    tool_use_id: Text


class _Statements(Statements):
    contract = "effects"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.tasks = self.schema.table(
            "tasks", Column("task", Key, primary_key=True), Column("record", Json, nullable=False)
        )
        self.done = self.schema.table(
            "done",
            Column("task", Key, primary_key=True),
            Column("tool_use", Key, primary_key=True),
            Column("record", Json, nullable=False),
        )
        self.effects = self.schema.table(
            "effects",
            Column("task", Key, primary_key=True),
            Column("position", BigInteger, primary_key=True),
            Column("record", Json, nullable=False),
        )
        task = ("task",)
        self.put_task = _rows.put(insert(self.tasks), "record")
        self.get_task = _rows.get(self.tasks, "record")
        self.add_done = insert(self.done)
        self.add_new = self.add_done.on_conflict_do_nothing().returning(self.done.c.tool_use)
        self.all_done = _rows.get(self.done, "tool_use", "record", by=task)
        self.add_effect = insert(self.effects)
        self.append_effect = insert(self.effects).values(position=_rows.next_position(self.effects, "task"))
        self.all_effects = _rows.get(self.effects, "position", "record", by=task).order_by(self.effects.c.position)
        self.drops = [_rows.drop(table, by=task) for table in (self.tasks, self.done, self.effects)]


class SqlEffectStore(SqlStore[_Statements], EffectStore):
    """Keeps tasks in the table `wfstate_tasks`, and what they did in `wfstate_done` and `wfstate_effects`."""

    statements = _Statements

    @threaded
    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        check_id("task id", checkpoint.task_id)
        self._write(_row(checkpoint), lambda connection: self._save(connection, checkpoint))

    @threaded
    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        row = _task(task_id)
        return self._database.read(lambda connection: self._load(connection, row))

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        self._write(_task(task_id), lambda connection: self._mark(connection, task_id, effect))

    @threaded
    def delete_checkpoint(self, task_id: str) -> None:
        row = _task(task_id)
        self._write(row, lambda connection: self._drop(connection, row))

    def _write(self, row: Row, work: Callable[[Connection], None]) -> None:
        """Change a task: others that change it come before or after."""
        self._database.write(work, lock=f"{self._sql.tasks.name} {row['task']}")

    def _save(self, connection: Connection, checkpoint: WorkflowCheckpoint) -> None:
        row = _row(checkpoint)
        self._drop(connection, row)
        self._put(connection, checkpoint)
        done = [_Done(tool_use_id=one) for one in sorted(checkpoint.completed_tool_ids)]
        effects = [
            {**row, "position": position, "record": effect.to_json()}
            for position, effect in enumerate(checkpoint.side_effects_log)
        ]
        if done:
            connection.execute(self._sql.add_done, [{**row, **_done_row(one), "record": one.to_json()} for one in done])
        if effects:
            connection.execute(self._sql.add_effect, effects)

    def _load(self, connection: Connection, row: Row) -> WorkflowCheckpoint | None:
        checkpoint = self._get(connection, row)
        if checkpoint is not None:
            checkpoint.completed_tool_ids = {
                parse(_Done, one.record, self._sql.done, {**row, "tool_use": one.tool_use}, _done_row).tool_use_id
                for one in connection.execute(self._sql.all_done, of(row))
            }
            checkpoint.side_effects_log = [
                parse(SideEffectRecord, one.record, self._sql.effects, {**row, "position": one.position})
                for one in connection.execute(self._sql.all_effects, of(row))
            ]
        return checkpoint

    def _mark(self, connection: Connection, task_id: str, effect: SideEffectRecord) -> None:
        row = _task(task_id)
        checkpoint = self._get(connection, row) or WorkflowCheckpoint.new(task_id, "unknown")
        done = _Done(tool_use_id=effect.tool_use_id)
        added = connection.execute(self._sql.add_new, {**row, **_done_row(done), "record": done.to_json()})
        if added.first() is not None:
            checkpoint.mark(effect, at=seconds(self._clock()))
            connection.execute(self._sql.append_effect, {**row, **of(row), "record": effect.to_json()})
            self._put(connection, checkpoint)

    def _get(self, connection: Connection, row: Row) -> WorkflowCheckpoint | None:
        """Give a checkpoint as its own row has it, without ids and effects."""
        text = connection.execute(self._sql.get_task, of(row)).scalar()
        return None if text is None else parse(WorkflowCheckpoint, text, self._sql.tasks, row, _row)

    def _put(self, connection: Connection, checkpoint: WorkflowCheckpoint) -> None:
        alone = checkpoint.model_copy(update={"completed_tool_ids": set(), "side_effects_log": []})
        connection.execute(self._sql.put_task, {**_row(checkpoint), "record": alone.to_json()})

    def _drop(self, connection: Connection, row: Row) -> None:
        for drop in self._sql.drops:
            connection.execute(drop, of(row))


def _task(task_id: str) -> dict[str, str]:
    return {"task": key(check_id("task id", task_id))}


def _row(checkpoint: WorkflowCheckpoint) -> dict[str, str]:
    return {"task": key(checkpoint.task_id)}


def _done_row(done: _Done) -> dict[str, str]:
    return {"tool_use": key(done.tool_use_id)}
