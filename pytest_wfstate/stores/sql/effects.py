"""The effects contract, in a database: a row per task, per completed id and per effect.

The row of a task holds its checkpoint without ids and effects, so that a mark costs the same however many there are. A
revision names each state of that row, so that a mark which has read one is made only if it is still there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, and_, bindparam, case, cast, null, select, union_all, update
from sqlalchemy import Text as Words

from pytest_wfstate.contracts.clock import seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Record, Text
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse
from pytest_wfstate.stores.sql.rows import Row, of
from pytest_wfstate.stores.sql.schema import Json, Key, key
from pytest_wfstate.stores.sql.statements import Change, StatementResult, Values


class _Done(Record):
    """The id of a completed tool call."""

    tool_use_id: Text


class _EffectStatements(Statements):
    contract = "effects"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.tasks = self.schema.table(
            "tasks",
            Column("task", Key, primary_key=True),
            Column("record", Json, nullable=False),
            Column("revision", Words, nullable=False),
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
        self.put_task = self._statement(rows.put(insert(self.tasks), "record", "revision"))
        self.add_done = self._insert_many(self.done)
        self.add_effects = self._insert_many(self.effects)
        self.drops = [self._statement(rows.drop(table, by=task)) for table in (self.tasks, self.done, self.effects)]
        no_use, no_position = cast(null(), Words), cast(null(), BigInteger)
        self.load = self._statement(
            union_all(
                rows.get(self.tasks, "record").add_columns(no_use, no_position),
                rows.get(self.done, "record", "tool_use", by=task).add_columns(no_position),
                rows.get(self.effects, "record", by=task).add_columns(no_use, self.effects.c.position),
            )
        )
        self._begin_marks(insert)

    def _begin_marks(self, insert: Callable[..., Any]) -> None:
        """Build a mark: a change of the task, and two that are made only if that was."""
        revision, is_done = self.tasks.c.revision, rows.get(self.done, "task").exists()
        self.get_task = self._statement(
            rows.get(self.tasks, "record", "revision").add_columns(case((is_done, 1), else_=0))
        )
        is_seen = and_(rows.matches(self.tasks), revision == bindparam("seen"), ~is_done)
        self.swap_task = self._statement(update(self.tasks).where(is_seen))
        self.add_task = self._statement(insert(self.tasks).on_conflict_do_nothing())
        is_made = select(revision).where(rows.matches(self.tasks), revision == bindparam("own")).exists()
        self.mark_done = self._statement(rows.insert_if(insert(self.done), is_made))
        position = rows.next_position(self.effects, "task")
        self.append_effect = self._statement(rows.insert_if(insert(self.effects), is_made, position=position))


class SqlEffectStore(SqlStore[_EffectStatements], EffectStore):
    """Keeps tasks in the table `wfstate_tasks`, and what they have done in `wfstate_done` and `wfstate_effects`."""

    statements = _EffectStatements

    @threaded
    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        row = _task(checkpoint.task_id)
        done: list[Values] = [self._done(row, id_) for id_ in sorted(checkpoint.completed_tool_ids)]
        effects: list[Values] = [
            {**row, "position": position, "record": effect.to_json()}
            for position, effect in enumerate(checkpoint.side_effects_log)
        ]
        changes: list[Change] = [*self._drop(row), (self._sql.put_task, _columns(checkpoint))]
        changes += [(self._sql.add_done, done)] if done else []
        changes += [(self._sql.add_effects, effects)] if effects else []
        self._write(row, changes)

    @threaded
    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        row = _task(task_id)
        # One statement sees one moment, and nothing is parsed before all of it is read.
        checkpoint, done, effects = None, set(), {}
        for text, tool_use, position in self._database.ask(self._sql.load, of(row)).rows:
            if tool_use is not None:
                place = {**row, "tool_use": tool_use}
                done.add(parse(_Done, text, self._sql.done, place, _done_row).tool_use_id)
            elif position is not None:
                effects[position] = parse(SideEffectRecord, text, self._sql.effects, {**row, "position": position})
            else:
                checkpoint = parse(WorkflowCheckpoint, text, self._sql.tasks, row, _row)
        if checkpoint is not None:
            checkpoint.completed_tool_ids = done
            checkpoint.side_effects_log = [effects[position] for position in sorted(effects)]
        return checkpoint

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        row = _task(task_id)
        effect = check_effect(tool_use_id, effect)
        self._database.in_turn(row["task"], lambda: self._mark_in_turn(task_id, row, effect))

    def _mark_in_turn(self, task_id: str, row: Row, effect: SideEffectRecord) -> None:
        done = self._done(row, effect.tool_use_id)
        is_made = False
        while not is_made:
            seen = self._database.ask(self._sql.get_task, of({**row, "tool_use": done["tool_use"]})).rows
            checkpoint = WorkflowCheckpoint.new(task_id, "unknown")
            if seen:
                checkpoint = parse(WorkflowCheckpoint, seen[0][0], self._sql.tasks, row, _row)
                if seen[0][2]:
                    return
            checkpoint.mark(effect, at=seconds(self._clock()))
            is_made = self._mark(row, _columns(checkpoint), done, effect, seen[0][1] if seen else None)

    @threaded
    def delete_checkpoint(self, task_id: str) -> None:
        row = _task(task_id)
        self._write(row, self._drop(row))

    def _mark(self, row: Row, task: Row, done: Row, effect: SideEffectRecord, seen: str | None) -> bool:
        """Mark a task if its revision is still the one seen. Return whether it was."""
        if seen is None:
            change: Change = self._sql.add_task, task
        else:
            columns = {"record": task["record"], "revision": task["revision"]}
            change = self._sql.swap_task, {**of(done), **columns, "seen": seen}
        own = {**of(row), "own": task["revision"]}
        appended = {**row, **own, "record": effect.to_json()}
        changes = [change, (self._sql.mark_done, {**done, **own}), (self._sql.append_effect, appended)]
        return self._write(row, changes)[0].changed > 0

    def _write(self, row: Row, changes: Sequence[Change]) -> list[StatementResult]:
        """Change a task, serialized with other changes to it."""
        return self._database.write(changes, lock=f"{self._sql.tasks.name} {row['task']}")

    def _done(self, row: Row, tool_use_id: str) -> Row:
        done = _Done(tool_use_id=tool_use_id)
        return {**row, **_done_row(done), "record": done.to_json()}

    def _drop(self, row: Row) -> list[Change]:
        return [(drop, of(row)) for drop in self._sql.drops]


def _task(task_id: str) -> dict[str, str]:
    return {"task": key(check_id("task id", task_id))}


def _row(checkpoint: WorkflowCheckpoint) -> dict[str, str]:
    return {"task": key(checkpoint.task_id)}


def _columns(checkpoint: WorkflowCheckpoint) -> dict[str, str]:
    """Return the row of a task: its checkpoint without ids and effects, and a new revision."""
    alone = checkpoint.model_copy(update={"completed_tool_ids": set(), "side_effects_log": []})
    return {**_row(checkpoint), "record": alone.to_json(), "revision": uuid.uuid4().hex}


def _done_row(done: _Done) -> dict[str, str]:
    return {"tool_use": key(done.tool_use_id)}
