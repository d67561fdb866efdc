"""Run stores that lose track of a run or its steps."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.runs import TaskStatus, WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file import FileRunStore
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonRuns


@known_bad("runs", "create.keeps-steps create.keeps-times upsert.before-run kill.create power.create")
class CreateDropsSteps(JsonRuns):
    """Creating a run again discards its steps. A worker that resumes the run does all its work again."""

    def put(self, record: WorkflowExecutionState) -> None:
        self.drop(record.run_task_id)
        super().put(record)


@known_bad("runs", "create.replaces-all")
class CreateFillsGaps(JsonRuns):
    """Fields that a new record leaves empty are taken from the old one. A run cannot be moved out of a workspace."""

    def put(self, record: WorkflowExecutionState) -> None:
        old = {name: value for name, value in self.stored(record) or () if getattr(record, name) is None}
        super().put(record.model_copy(update=old))


@known_bad("runs", "update.unknown update.steps-alone update.after-delete")
class UpdateOfNothingIsFine(JsonRuns):
    """Updating a missing run silently does nothing. With a mistyped id, every result is lost."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        with contextlib.suppress(NotFound):
            super().update_context(run_task_id, context)


@known_bad("runs", "update.after-delete update.newest")
class UpdateKeepsWhatWasLoaded(JsonRuns):
    """A handle updates the run that it created, as it remembers it.

    A late update brings back a deleted run and reverts what another worker has changed.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._mine: dict[str, WorkflowExecutionState] = {}

    def put(self, record: WorkflowExecutionState) -> None:
        super().put(record)
        self._mine[record.run_task_id] = record

    def update_context(self, run_task_id: str, context: Any) -> None:
        mine = self._mine.get(run_task_id)
        if mine is None:
            super().update_context(run_task_id, context)
        else:
            self.create_run(mine.model_copy(update={"context": context, "updated_at": now()}))


@known_bad("runs", "update.nothing-else update.whole update.falsy")
class UpdateMerges(JsonRuns):
    """A new context is merged into the old one. Nothing can be removed from it."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        old = self.get_run(run_task_id)
        if old and isinstance(old.context, dict) and isinstance(context, dict):
            context = {**old.context, **context}
        super().update_context(run_task_id, context)


@known_bad("runs", "update.stamp update.stamp-alone race.create-run-update-context race.update-context-delete-run")
class UpdateLeavesTheTime(JsonRuns):
    """An update changes only the context. Nothing shows that the run is still active."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        old = self.get_run(run_task_id)
        super().update_context(run_task_id, context)
        if old:
            self.create_run(old.model_copy(update={"context": context}))


@known_bad(
    "runs",
    "delete.forgets update.after-delete steps.begin-anew delete.steps-alone delete.then-create delete.seen-at-once",
    "ids.never-joined corrupt.heals",
)
class DeleteLeavesSteps(JsonRuns):
    """Only the run is deleted. A new run with the same id inherits its steps."""

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.edit(run_task_id) as document:
            document.pop("run", None)


@known_bad(
    "runs",
    "upsert.before-run update.steps-alone delete.steps-alone",
)
class StepsNeedARun(JsonRuns):
    """A step is refused until its run is created. A worker that is faster than the one that creates runs fails."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        if self.get_run(run_task_id) is None:
            raise no_run(run_task_id)
        super().upsert_step(run_task_id, step)


@known_bad(
    "runs",
    "upsert.replaces upsert.survives-restart upsert.whole upsert.others upsert.seen-at-once steps.replaced-in-place",
    "steps.in-order-after-restart steps.many values.refused errors.upsert",
)
class FirstStepWins(JsonRuns):
    """An existing step is never written again. It keeps its first status, such as running, forever."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        if self.get_step(run_task_id, step.step_id) is None:
            super().upsert_step(run_task_id, step)


@known_bad(
    "runs",
    "upsert.adds upsert.survives-restart steps.in-order create.keeps-steps update.nothing-else update.steps-alone",
    "upsert.before-run upsert.seen-at-once upsert.statuses steps.replaced-in-place steps.in-order-after-restart",
    "steps.many list.thousand aliasing.steps ids.any-step ids.steps-never-collide",
)
class StepsSortedByName(FileRunStore):
    """Steps are listed by name. `charge` appears to have run before `fetch`."""

    async def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        return sorted(await super().list_steps(run_task_id), key=lambda step: step.step_id)


@known_bad(
    "runs",
    "upsert.survives-restart upsert.seen-at-once steps.replaced-in-place steps.in-order-after-restart steps.many",
)
class ReplacedStepsMove(JsonRuns):
    """Replacing a step moves it to the end. If the first step finishes last, it is listed last."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        step = WorkflowStepState.checked(step)
        self.check(run_task_id, step.step_id)
        with self.edit(run_task_id) as document:
            steps = document.setdefault("steps", {})
            steps.pop(step.step_id, None)
            steps[step.step_id] = json.loads(step.to_json())


@known_bad("runs", "upsert.whole")
class StepsMerge(JsonRuns):
    """Fields that a step leaves empty are taken from the stored one. A retried step keeps its old error."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        old = self.get_step(run_task_id, step.step_id)
        kept = {name: value for name, value in old or () if getattr(step, name) is None}
        super().upsert_step(run_task_id, step.model_copy(update=kept))


@known_bad(
    "runs",
    "upsert.adds upsert.replaces upsert.survives-restart create.keeps-times create.others update.unknown",
    "upsert.leaves-run delete.others delete.seen-at-once values.refused aliasing.steps ids.refused-everywhere",
    "update.stamp-alone race.update-context-upsert-step race.delete-run-upsert-step",
)
class StepsTouchTheRun(JsonRuns):
    """Saving a step sets its run's `updated_at`, which no longer shows when the context was last updated."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step)
        run = self.get_run(run_task_id)
        if run is not None:
            self.create_run(run.model_copy(update={"updated_at": now()}))


@known_bad("runs", "upsert.statuses")
class KnowsFewStatuses(FileRunStore):
    """Four statuses are stored as they are, all others as running. A step that waits for input seems to be running."""

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        known = {TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.COMPLETED, TaskStatus.FAILED}
        status = step.status if step.status in known else TaskStatus.RUNNING
        await super().upsert_step(run_task_id, step.model_copy(update={"status": status}))


@known_bad("runs", "ids.never-joined kill.upsert power.upsert errors.upsert race.get-step race.list-steps")
class JoinsRunAndStep(JsonRuns):
    """Steps share one table, keyed by run and step joined with a dash. Step `b-c` of `a` is also step `c` of `a-b`."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step)
        with self.edit("table of steps") as table:
            table[f"{run_task_id}-{step.step_id}"] = json.loads(step.to_json())

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        table = self.fields("table of steps")
        return {
            name: WorkflowStepState.model_validate({**table[f"{run_task_id}-{name}"], "step_id": name})
            for name in super().steps(run_task_id)
        }


@known_bad("runs", "corrupt.heals kill.delete power.delete errors.delete")
class DeletesInTwoSteps(JsonRuns):
    """The run is deleted first, its steps second. A process that dies in between leaves steps without a run."""

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.edit(run_task_id) as document:
            document.pop("run", None)
        super().delete_run(run_task_id)


@known_bad("runs", "ids.any-step ids.steps-never-collide")
class CutsStepIds(JsonRuns):
    """Step ids are cut to 255 characters, the width of a database column. Long ids are returned shortened."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        self.check(step.step_id)
        super().upsert_step(run_task_id, step.model_copy(update={"step_id": step.step_id[:255]}))

    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        self.check(step_id)
        return super().get_step(run_task_id, step_id[:255])
