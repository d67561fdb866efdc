"""The runs contract, in a folder: one journal per run holds both its state and its steps."""

from __future__ import annotations

import os
from typing import Any, Self, Unpack

from pydantic import Field

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Record, Text, left_out
from pytest_wfstate.contracts.runs import RunStore, WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.file.base import FileSettings, FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.file.journal import Journal


class _RunChange(Record):
    """A change: a new state of the run, or of one of its steps."""

    run: WorkflowExecutionState | None = left_out()
    step: WorkflowStepState | None = left_out()


class _RunDocument(Record):
    """A journal's document: a run, if it was created, and its steps in order."""

    run_task_id: Text
    run: WorkflowExecutionState | None = None
    steps: dict[Text, WorkflowStepState] = Field(default_factory=dict)

    @classmethod
    def blank(cls, *ids: str) -> Self:
        (run_task_id,) = ids
        return cls(run_task_id=run_task_id)

    def ids(self) -> tuple[str, ...]:
        return (self.run_task_id,)

    def apply(self, change: bytes | str) -> None:
        parsed = _RunChange.model_validate_json(change)
        if parsed.run is not None:
            self.run = parsed.run
        if parsed.step is not None:
            self.steps[parsed.step.step_id] = parsed.step

    def size(self) -> int:
        return len(self.steps)


class FileRunStore(FileStore, RunStore):
    """Keeps run `run-1` and its steps in `run-1.journal`."""

    contract = "runs"

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._runs = Journal(self._folder, ".journal", _RunDocument)

    def close(self) -> None:
        super().close()
        self._runs.forget()

    @threaded
    def create_run(self, state: WorkflowExecutionState) -> None:
        state = WorkflowExecutionState.checked(state)
        with self._runs.edit(check_id("run id", state.run_task_id)) as edit:
            edit.apply(_RunChange(run=state))

    @threaded
    def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        with self._runs.view(check_id("run id", run_task_id)) as run:
            return None if run is None or run.run is None else WorkflowExecutionState.checked(run.run)

    @threaded
    def update_context(self, run_task_id: str, context: Any) -> None:
        check_id("run id", run_task_id)
        if not self._folder.exists():
            raise no_run(run_task_id)
        with self._runs.edit(run_task_id) as edit:
            if edit.document.run is None:
                raise no_run(run_task_id)
            state = WorkflowExecutionState.checked(edit.document.run)
            state.context = context
            state.updated_at = now()
            edit.apply(_RunChange(run=state))

    @threaded
    def delete_run(self, run_task_id: str) -> None:
        self._runs.delete(check_id("run id", run_task_id))

    @threaded
    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        check_id("run id", run_task_id)
        step = WorkflowStepState.checked(step)
        check_id("step id", step.step_id)
        with self._runs.edit(run_task_id) as edit:
            edit.apply(_RunChange(step=step))

    @threaded
    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        check_id("step id", step_id)
        with self._runs.view(check_id("run id", run_task_id)) as run:
            step = None if run is None else run.steps.get(step_id)
            return None if step is None else WorkflowStepState.checked(step)

    @threaded
    def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        with self._runs.view(check_id("run id", run_task_id)) as run:
            return [] if run is None else [WorkflowStepState.checked(step) for step in run.steps.values()]
