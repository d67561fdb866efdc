"""The runs contract, in a database: a row per run and per step.

A step may exist without its run. Its position records the order in which the steps of a run were first inserted. A
revision names each state of a run, so that a change which has read one is made only if it is still there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Column, Text, UniqueConstraint, bindparam, update

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.runs import RunStore, WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse
from pytest_wfstate.stores.sql.rows import Row, of
from pytest_wfstate.stores.sql.schema import Json, Key, key
from pytest_wfstate.stores.sql.statements import Change


class _RunStatements(Statements):
    contract = "runs"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.runs = self.schema.table(
            "runs",
            Column("run", Key, primary_key=True),
            Column("record", Json, nullable=False),
            Column("revision", Text, nullable=False),
        )
        self.put_run = self._statement(rows.put(insert(self.runs), "record", "revision"))
        self.get_run = self._statement(rows.get(self.runs, "record", "revision"))
        is_seen = self.runs.c.revision == bindparam("seen")
        self.swap_run = self._statement(update(self.runs).where(rows.matches(self.runs), is_seen))
        self.drop_run = self._statement(rows.drop(self.runs))
        self.steps = self.schema.table(
            "run_steps",
            Column("run", Key, primary_key=True),
            Column("step", Key, primary_key=True),
            Column("position", BigInteger, nullable=False),
            Column("record", Json, nullable=False),
            UniqueConstraint("run", "position"),
        )
        appended = insert(self.steps).values(position=rows.next_position(self.steps, "run"))
        self.put_step = self._statement(rows.put(appended, "record"))
        self.get_step = self._statement(rows.get(self.steps, "record"))
        self.list_steps = self._statement(
            rows.get(self.steps, "step", "record", by=("run",)).order_by(self.steps.c.position)
        )
        self.drop_steps = self._statement(rows.drop(self.steps, by=("run",)))


class SqlRunStore(SqlStore[_RunStatements], RunStore):
    """Keeps runs in the table `wfstate_runs`, and their steps in `wfstate_run_steps`."""

    statements = _RunStatements

    @threaded
    def create_run(self, state: WorkflowExecutionState) -> None:
        state = WorkflowExecutionState.checked(state)
        check_id("run id", state.run_task_id)
        self._database.change(self._sql.put_run, {**_row(state), **_columns(state)})

    @threaded
    def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        row = _run(run_task_id)
        text = self._database.ask(self._sql.get_run, of(row)).value
        return None if text is None else self._parse_run(text, row)

    @threaded
    def update_context(self, run_task_id: str, context: Any) -> None:
        row = _run(run_task_id)
        self._database.in_turn(row["run"], lambda: self._update_in_turn(run_task_id, row, context))

    def _update_in_turn(self, run_task_id: str, row: Row, context: Any) -> None:
        while found := self._database.ask(self._sql.get_run, of(row)).rows:
            text, revision = found[0]
            state = self._parse_run(text, row)
            state.context = context
            state.updated_at = self._clock()
            if self._database.change(self._sql.swap_run, {**of(row), **_columns(state), "seen": revision}).changed:
                return
        raise no_run(run_task_id)

    @threaded
    def delete_run(self, run_task_id: str) -> None:
        row = _run(run_task_id)
        self._write(row, (self._sql.drop_run, of(row)), (self._sql.drop_steps, of(row)))

    @threaded
    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        run = _run(run_task_id)
        step = WorkflowStepState.checked(step)
        check_id("step id", step.step_id)
        row = {**run, **_step_row(step), "record": step.to_json()}
        self._write(run, (self._sql.put_step, {**row, **of(run)}))

    @threaded
    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        row = {**_run(run_task_id), "step": key(check_id("step id", step_id))}
        text = self._database.ask(self._sql.get_step, of(row)).value
        return None if text is None else self._parse_step(text, row)

    @threaded
    def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        run = _run(run_task_id)
        steps = self._database.ask(self._sql.list_steps, of(run)).rows
        return [self._parse_step(text, {**run, "step": step}) for step, text in steps]

    def _write(self, run: Row, *changes: Change) -> None:
        """Change the steps of a run, serialized with other changes to them."""
        self._database.write(changes, lock=f"{self._sql.runs.name} {run['run']}")

    def _parse_run(self, text: Any, row: Row) -> WorkflowExecutionState:
        return parse(WorkflowExecutionState, text, self._sql.runs, row, _row)

    def _parse_step(self, text: Any, row: Row) -> WorkflowStepState:
        return parse(WorkflowStepState, text, self._sql.steps, row, _step_row)


def _run(run_task_id: str) -> dict[str, str]:
    return {"run": key(check_id("run id", run_task_id))}


def _row(state: WorkflowExecutionState) -> dict[str, str]:
    return {"run": key(state.run_task_id)}


def _columns(state: WorkflowExecutionState) -> dict[str, str]:
    """Return the other columns of a run: a change finds its row only at the revision that it has read."""
    return {"record": state.to_json(), "revision": uuid.uuid4().hex}


def _step_row(step: WorkflowStepState) -> dict[str, str]:
    return {"step": key(step.step_id)}
