"""The effects contract, in a database: a row per task, per completed id and per effect.

The row of a task holds its checkpoint without ids and effects, so that a mark costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Column

from pytest_wfstate.contracts.clock import seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Record, Text
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse
from pytest_wfstate.stores.sql.rows import Row, of
from pytest_wfstate.stores.sql.schema import Json, Key, key
from pytest_wfstate.stores.sql.statements import Change, Transaction


class _Done(Record):
    """The id of a completed tool call."""

    tool_use_id: Text


class _EffectStatements(Statements):
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
        self.put_task = self._statement(rows.put(insert(self.tasks), "record"))
        self.get_task = self._statement(rows.get(self.tasks, "record"))
        add_new = insert(self.done).on_conflict_do_nothing().returning(self.done.c.tool_use)
        self.add_new = self._statement(add_new)
        self.add_done = self._statement(insert(self.done))
        self.all_done = self._statement(rows.get(self.done, "tool_use", "record", by=task))
        self.add_effect = self._statement(insert(self.effects))
        append = insert(self.effects).values(position=rows.next_position(self.effects, "task"))
        self.append_effect = self._statement(append)
        all_effects = rows.get(self.effects, "position", "record", by=task)
        self.all_effects = self._statement(all_effects.order_by(self.effects.c.position))
        tables = (self.tasks, self.done, self.effects)
        self.drops = [self._statement(rows.drop(table, by=task)) for table in tables]


class SqlEffectStore(SqlStore[_EffectStatements], EffectStore):
    """Keeps tasks in the table `wfstate_tasks`, and what they have done in `wfstate_done` and `wfstate_effects`."""

    statements = _EffectStatements

    @threaded
    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        check_id("task id", checkpoint.task_id)
        self._write(_row(checkpoint), lambda transaction: self._save(transaction, checkpoint))

    @threaded
    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        row = _task(task_id)
        return self._database.read(lambda transaction: self._load(transaction, row))

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        check_id("task id", task_id)
        effect = check_effect(tool_use_id, effect)
        self._write(_task(task_id), lambda transaction: self._mark(transaction, task_id, effect))

    @threaded
    def delete_checkpoint(self, task_id: str) -> None:
        row = _task(task_id)
        self._write(row, lambda transaction: transaction.execute_all(self._drop(row)))

    def _write(self, row: Row, work: Callable[[Transaction], None]) -> None:
        """Change a task, serialized with other changes to it."""
        self._database.write(work, lock=f"{self._sql.tasks.name} {row['task']}")

    def _save(self, transaction: Transaction, checkpoint: WorkflowCheckpoint) -> None:
        row = _row(checkpoint)
        completed = [_Done(tool_use_id=id_) for id_ in sorted(checkpoint.completed_tool_ids)]
        transaction.execute_all(
            [
                *self._drop(row),
                self._put(checkpoint),
                *((self._sql.add_done, {**row, **_done_row(done), "record": done.to_json()}) for done in completed),
                *(
                    (self._sql.add_effect, {**row, "position": position, "record": effect.to_json()})
                    for position, effect in enumerate(checkpoint.side_effects_log)
                ),
            ]
        )

    def _load(self, transaction: Transaction, row: Row) -> WorkflowCheckpoint | None:
        checkpoint = self._get(transaction, row)
        if checkpoint is not None:
            checkpoint.completed_tool_ids = {
                parse(_Done, text, self._sql.done, {**row, "tool_use": tool_use}, _done_row).tool_use_id
                for tool_use, text in transaction.execute(self._sql.all_done, of(row)).rows
            }
            checkpoint.side_effects_log = [
                parse(SideEffectRecord, text, self._sql.effects, {**row, "position": position})
                for position, text in transaction.execute(self._sql.all_effects, of(row)).rows
            ]
        return checkpoint

    def _mark(self, transaction: Transaction, task_id: str, effect: SideEffectRecord) -> None:
        row = _task(task_id)
        checkpoint = self._get(transaction, row) or WorkflowCheckpoint.new(task_id, "unknown")
        done = _Done(tool_use_id=effect.tool_use_id)
        added = transaction.execute(self._sql.add_new, {**row, **_done_row(done), "record": done.to_json()})
        if added.rows:
            checkpoint.mark(effect, at=seconds(self._clock()))
            appended = {**row, **of(row), "record": effect.to_json()}
            transaction.execute_all([(self._sql.append_effect, appended), self._put(checkpoint)])

    def _get(self, transaction: Transaction, row: Row) -> WorkflowCheckpoint | None:
        """Return a checkpoint as its own row has it, without ids and effects."""
        text = transaction.execute(self._sql.get_task, of(row)).value
        return None if text is None else parse(WorkflowCheckpoint, text, self._sql.tasks, row, _row)

    def _put(self, checkpoint: WorkflowCheckpoint) -> Change:
        alone = checkpoint.model_copy(update={"completed_tool_ids": set(), "side_effects_log": []})
        return self._sql.put_task, {**_row(checkpoint), "record": alone.to_json()}

    def _drop(self, row: Row) -> list[Change]:
        return [(drop, of(row)) for drop in self._sql.drops]


def _task(task_id: str) -> dict[str, str]:
    return {"task": key(check_id("task id", task_id))}


def _row(checkpoint: WorkflowCheckpoint) -> dict[str, str]:
    return {"task": key(checkpoint.task_id)}


def _done_row(done: _Done) -> dict[str, str]:
    return {"tool_use": key(done.tool_use_id)}
