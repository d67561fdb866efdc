"""The runs contract, in memory."""

from __future__ import annotations

from typing import Any

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.runs import RunStore, WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.stores.memory.base import MemoryStore


class MemoryRunStore(MemoryStore, RunStore):
    """Keeps runs and their steps in memory."""

    def __init__(self, *, clock: Clock = now) -> None:
        super().__init__(clock=clock)
        self._runs: dict[str, str] = {}
        self._steps: dict[str, dict[str, str]] = {}

    async def create_run(self, state: WorkflowExecutionState) -> None:
        state = WorkflowExecutionState.checked(state)
        check_id("run id", state.run_task_id)
        with self._lock:
            self._runs[state.run_task_id] = state.to_json()

    async def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        check_id("run id", run_task_id)
        with self._lock:
            return self._get(run_task_id)

    async def update_context(self, run_task_id: str, context: Any) -> None:
        check_id("run id", run_task_id)
        with self._lock:
            state = self._get(run_task_id)
            if state is None:
                raise no_run(run_task_id)
            state.context = context
            state.updated_at = self._clock()
            self._runs[run_task_id] = state.to_json()

    async def delete_run(self, run_task_id: str) -> None:
        check_id("run id", run_task_id)
        with self._lock:
            self._runs.pop(run_task_id, None)
            self._steps.pop(run_task_id, None)

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        check_id("run id", run_task_id)
        step = WorkflowStepState.checked(step)
        check_id("step id", step.step_id)
        with self._lock:
            self._steps.setdefault(run_task_id, {})[step.step_id] = step.to_json()

    async def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        check_id("run id", run_task_id)
        check_id("step id", step_id)
        with self._lock:
            text = self._steps.get(run_task_id, {}).get(step_id)
        return None if text is None else WorkflowStepState.from_json(text, f"{run_task_id}/{step_id}")

    async def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        check_id("run id", run_task_id)
        with self._lock:
            steps = list(self._steps.get(run_task_id, {}).items())
        return [WorkflowStepState.from_json(text, f"{run_task_id}/{step_id}") for step_id, text in steps]

    def _get(self, run_task_id: str) -> WorkflowExecutionState | None:
        text = self._runs.get(run_task_id)
        return None if text is None else WorkflowExecutionState.from_json(text, run_task_id)
