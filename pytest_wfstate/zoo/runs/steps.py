"""Run stores that mix up the steps of runs."""

from __future__ import annotations

import json
import os

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.runs import TaskStatus, WorkflowStepState, no_run
from pytest_wfstate.stores.file import FileRunStore
from pytest_wfstate.zoo._json import JsonRuns
from pytest_wfstate.zoo.base import animal


@animal(
    "runs",
    "steps.missing",
    "delete.forgets",
    "random.calls",
    "steps.begin-anew",
    "ids.steps-never-collide",
    "ids.never-joined",
)
class StepMissingIsAnError(FileRunStore):
    """To get a step that is not there raises KeyError. A step that has not begun looks like a failure."""

    async def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        found = await super().get_step(run_task_id, step_id)
        if found is None:
            raise KeyError(step_id)
        return found


@animal(
    "runs",
    "steps.in-order",
    "values.falsy",
    "values.unicode",
    "values.large",
    "random.calls",
    "update.steps-alone",
    "upsert.whole",
    "upsert.before-run",
    "upsert.others",
    "upsert.seen-at-once",
    "upsert.statuses",
    "steps.replaced-in-place",
    "steps.in-order-after-restart",
    "steps.begin-anew",
    "delete.steps-alone",
    "delete.seen-at-once",
    "ids.any-step",
    "ids.steps-never-collide",
    "ids.never-joined",
)
class StepsNeedARun(JsonRuns):
    """A step of a run that was not created is refused. A worker that is faster than the one who creates runs fails."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        if self.get_run(run_task_id) is None:
            raise no_run(run_task_id)
        super().upsert_step(run_task_id, step)


@animal(
    "runs",
    "upsert.adds",
    "upsert.survives-restart",
    "steps.in-order",
    "random.calls",
    "create.keeps-steps",
    "update.nothing-else",
    "update.steps-alone",
    "upsert.before-run",
    "upsert.seen-at-once",
    "upsert.statuses",
    "steps.replaced-in-place",
    "steps.in-order-after-restart",
    "steps.begin-anew",
    "steps.many",
    "aliasing.steps",
    "ids.any-step",
    "ids.steps-never-collide",
)
class OneStepAtATime(JsonRuns):
    """A run has one step, the one that it is at. Those before it are forgotten."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        step = WorkflowStepState.checked(step)
        self.check(run_task_id, step.step_id)
        with self.changed(run_task_id) as document:
            document["steps"] = {step.step_id: json.loads(step.to_json())}


@animal(
    "runs",
    "upsert.replaces",
    "upsert.survives-restart",
    "random.calls",
    "upsert.whole",
    "upsert.others",
    "upsert.seen-at-once",
    "steps.replaced-in-place",
    "steps.in-order-after-restart",
    "steps.many",
    "values.refused",
    "errors.upsert",
)
class FirstStepWins(JsonRuns):
    """A step that is there is not written again. It stays running for ever."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        if self.get_step(run_task_id, step.step_id) is None:
            super().upsert_step(run_task_id, step)


@animal(
    "runs",
    "upsert.adds",
    "upsert.survives-restart",
    "steps.in-order",
    "random.calls",
    "create.keeps-steps",
    "update.nothing-else",
    "update.steps-alone",
    "upsert.before-run",
    "upsert.seen-at-once",
    "upsert.statuses",
    "steps.replaced-in-place",
    "steps.in-order-after-restart",
    "steps.many",
    "aliasing.steps",
    "ids.any-step",
    "ids.steps-never-collide",
)
class StepsSortedByName(FileRunStore):
    """Steps are listed by their names. `charge` seems to come before `fetch`."""

    async def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        return sorted(await super().list_steps(run_task_id), key=lambda step: step.step_id)


@animal(
    "runs",
    "upsert.survives-restart",
    "random.calls",
    "upsert.seen-at-once",
    "steps.replaced-in-place",
    "steps.in-order-after-restart",
    "steps.many",
)
class ReplacedStepsMove(JsonRuns):
    """A step that is replaced is taken out and added at the end. The first step that ends last is listed last."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        step = WorkflowStepState.checked(step)
        self.check(run_task_id, step.step_id)
        with self.changed(run_task_id) as document:
            steps = document.setdefault("steps", {})
            steps.pop(step.step_id, None)
            steps[step.step_id] = json.loads(step.to_json())


@animal(
    "runs",
    "upsert.survives-restart",
    "random.calls",
    "create.keeps-steps",
    "update.nothing-else",
    "update.steps-alone",
    "upsert.before-run",
    "upsert.seen-at-once",
    "upsert.statuses",
    "steps.in-order-after-restart",
    "steps.begin-anew",
    "steps.many",
    "aliasing.steps",
    "ids.any-step",
    "ids.steps-never-collide",
)
class OrderIsInMemory(JsonRuns):
    """The order of the steps is kept by the handle, and the file holds them by name. A restart sorts them."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._order: dict[str, list[str]] = {}

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step)
        self._order.setdefault(run_task_id, []).append(step.step_id)

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        found, order = super().steps(run_task_id), self._order.get(run_task_id, [])
        names = sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
        return {name: found[name] for name in names}


@animal("runs", "upsert.whole")
class StepsMerge(JsonRuns):
    """What a step leaves open is taken from the one before. A step that is tried again keeps its old error."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        old = self.get_step(run_task_id, step.step_id)
        kept = {name: value for name, value in old or () if getattr(step, name) is None}
        super().upsert_step(run_task_id, step.model_copy(update=kept))


@animal(
    "runs",
    "upsert.adds",
    "upsert.replaces",
    "upsert.survives-restart",
    "random.calls",
    "create.keeps-times",
    "create.others",
    "update.unknown",
    "upsert.leaves-run",
    "delete.others",
    "delete.seen-at-once",
    "values.refused",
    "aliasing.steps",
    "ids.refused-everywhere",
    "update.stamp-alone",
)
class StepsTouchTheRun(JsonRuns):
    """A step that changes sets the time of its run's update. Who compares it with the context's finds no match."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step)
        run = self.get_run(run_task_id)
        if run is not None:
            self.create_run(run.model_copy(update={"updated_at": now()}))


@animal("runs", "random.calls", "upsert.others")
class StepsOfAllRuns(JsonRuns):
    """Steps are kept by their names, whatever run they are of. Two runs of the same workflow share them."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        self.check(run_task_id)
        super().upsert_step("all steps", step)
        with self.changed(run_task_id) as document:
            document.setdefault("steps", {})[step.step_id] = {"step_id": step.step_id}

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        everyone = super().steps("all steps")
        return {name: everyone[name] for name in super().steps(run_task_id)}


@animal("runs", "steps.many")
class KeepsAHundredSteps(JsonRuns):
    """A run keeps its last hundred steps, lest files grow. A loop that runs longer does its first steps again."""

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        return dict(list(super().steps(run_task_id).items())[-100:])


@animal("runs", "upsert.statuses")
class KnowsFewStatuses(FileRunStore):
    """Statuses are kept as done, failed or neither. A step that waits for somebody seems to be running."""

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        known = {TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.COMPLETED, TaskStatus.FAILED}
        status = step.status if step.status in known else TaskStatus.RUNNING
        await super().upsert_step(run_task_id, step.model_copy(update={"status": status}))


@animal("runs", "values.falsy", "upsert.whole", "upsert.statuses")
class StepsWaitInMemory(FileRunStore):
    """Steps that are not done are kept in memory, and written when they are. A restart forgets that they began."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._open: dict[tuple[str, str], WorkflowStepState] = {}

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        self._open[run_task_id, step.step_id] = step
        if step.status is TaskStatus.COMPLETED or step.status is TaskStatus.FAILED:
            await super().upsert_step(run_task_id, self._open.pop((run_task_id, step.step_id)))

    async def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        found = await super().get_step(run_task_id, step_id)
        return self._open.get((run_task_id, step_id), found)
