"""Run stores that lose track of a run: create, update and delete."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.runs import WorkflowExecutionState, WorkflowStepState
from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file import FileRunStore
from pytest_wfstate.zoo._json import JsonRuns
from pytest_wfstate.zoo.base import animal


@animal(
    "runs",
    "load.missing",
    "save.load",
    "steps.missing",
    "delete.forgets",
    "delete.idempotent",
    "values.falsy",
    "values.unicode",
    "values.large",
    "ids.never-collide",
    "random.calls",
    "update.unknown",
    "update.steps-alone",
    "update.after-delete",
    "upsert.whole",
    "upsert.before-run",
    "upsert.others",
    "upsert.seen-at-once",
    "steps.begin-anew",
    "delete.steps-alone",
    "delete.seen-at-once",
    "ids.steps-never-collide",
    "ids.never-joined",
    "corrupt.heals",
)
class MissingIsAnError(FileRunStore):
    """To get a run that is not there raises KeyError. Who only wants to know whether it is there has to catch it."""

    async def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        found = await super().get_run(run_task_id)
        if found is None:
            raise KeyError(run_task_id)
        return found


@animal(
    "runs",
    "save.survives-restart",
    "update.context",
    "upsert.survives-restart",
    "handles.see-each-other",
    "values.falsy",
    "values.unicode",
    "values.large",
    "ids.any-text",
    "ids.never-collide",
    "aliasing.saved",
    "aliasing.loaded",
    "corrupt.stays-local",
    "random.calls",
    "create.keeps-steps",
    "create.replaces-all",
    "create.framework-fields",
    "update.nothing-else",
    "update.falsy",
    "update.unknown",
    "upsert.before-run",
    "upsert.leaves-run",
    "steps.many",
    "delete.others",
    "delete.then-create",
    "delete.seen-at-once",
    "values.refused",
    "aliasing.handed-over",
    "aliasing.steps",
    "ids.refused-everywhere",
    "corrupt.heals",
    "update.stamp",
    "update.stamp-alone",
)
class IndexIsInMemory(FileRunStore):
    """Each handle keeps an index of the runs that it created, and looks for no others. After a restart it has none."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._index: set[str] = set()

    async def create_run(self, state: WorkflowExecutionState) -> None:
        await super().create_run(state)
        self._index.add(state.run_task_id)

    async def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        found = await super().get_run(run_task_id)
        return found if run_task_id in self._index else None


@animal(
    "runs",
    "save.replaces",
    "save.survives-restart",
    "handles.see-each-other",
    "random.calls",
    "create.keeps-steps",
    "create.replaces-all",
    "create.keeps-times",
    "update.newest",
    "values.refused",
    "update.stamp-alone",
    "errors.create",
)
class FirstCreateWins(FileRunStore):
    """A run that is there is not created again.

    A run that was restarted with another input goes on with the old one.
    """

    async def create_run(self, state: WorkflowExecutionState) -> None:
        if await self.get_run(state.run_task_id) is None:
            await super().create_run(state)


@animal("runs", "random.calls", "create.keeps-steps", "create.keeps-times", "upsert.before-run", "values.refused")
class CreateDropsSteps(JsonRuns):
    """A run that is created again starts afresh, without steps. A worker that resumes it does all its work again."""

    def create_run(self, state: WorkflowExecutionState) -> None:
        self.delete_run(state.run_task_id)
        super().create_run(state)


@animal("runs", "create.replaces-all")
class CreateFillsGaps(JsonRuns):
    """What a new record leaves open is taken from the old one. A run cannot be moved out of a workspace."""

    def create_run(self, state: WorkflowExecutionState) -> None:
        old = self.get_run(state.run_task_id)
        kept = {name: value for name, value in old or () if getattr(state, name) is None}
        super().create_run(state.model_copy(update=kept))


@animal("runs", "create.replaces-all", "create.keeps-times")
class CreatedOnlyOnce(JsonRuns):
    """A run that is created again keeps the time of its first creation. Its record is not the one that was given."""

    def create_run(self, state: WorkflowExecutionState) -> None:
        old = self.get_run(state.run_task_id)
        super().create_run(state.model_copy(update={"created_at": old.created_at}) if old else state)


@animal("runs", "create.framework-fields")
class KeepsKnownFieldsOnly(FileRunStore):
    """A definition is stored field by field. What a newer framework put into it is gone when the run is resumed."""

    async def create_run(self, state: WorkflowExecutionState) -> None:
        known = (
            json.loads(state.definition.to_json(), object_hook=_known)
            if isinstance(state, WorkflowExecutionState)
            else {}
        )
        await super().create_run(state.model_copy(update={"definition": type(state.definition).model_validate(known)}))


_FIELDS = {"id", "steps", "input_schema", "checkpoint", "entry_points", "label", "kind", "depends_on", "execution"}
_FIELDS |= {"requires", "input", "skip_if", "type", "message"}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in _FIELDS}


@animal("runs", "random.calls", "update.unknown", "update.steps-alone", "update.after-delete")
class UpdateOfNothingIsFine(JsonRuns):
    """To update a run that is not there does nothing, and says nothing. A mistyped id loses every result."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        with contextlib.suppress(NotFound):
            super().update_context(run_task_id, context)


@animal("runs", "random.calls", "update.steps-alone")
class UpdateLooksForTheFile(JsonRuns):
    """A run is taken to be there if its file is, which may hold steps alone. The update then fails to fail."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        if self.read(run_task_id) and self.get_run(run_task_id) is None:
            return
        super().update_context(run_task_id, context)


@animal("runs", "random.calls", "update.after-delete", "update.newest")
class UpdateKeepsWhatWasLoaded(JsonRuns):
    """A handle updates the run that it created, as it remembers it.

    A late update brings back what was deleted, and takes back what another worker has changed.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._mine: dict[str, WorkflowExecutionState] = {}

    def create_run(self, state: WorkflowExecutionState) -> None:
        super().create_run(state)
        self._mine[state.run_task_id] = WorkflowExecutionState.checked(state)

    def update_context(self, run_task_id: str, context: Any) -> None:
        mine = self._mine.get(run_task_id)
        if mine is None:
            super().update_context(run_task_id, context)
        else:
            super().create_run(mine.model_copy(update={"context": context, "updated_at": now()}))


@animal("runs", "update.nothing-else", "update.whole", "update.falsy")
class UpdateMerges(JsonRuns):
    """A new context is merged into the old one. Nothing can be taken out of it."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        old = self.get_run(run_task_id)
        if old and isinstance(old.context, dict) and isinstance(context, dict):
            context = {**old.context, **context}
        super().update_context(run_task_id, context)


@animal("runs", "update.nothing-else", "update.falsy")
class UpdateIgnoresFalsy(JsonRuns):
    """A context that is empty is taken for one that was not given. It cannot be cleared."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        old = self.get_run(run_task_id)
        super().update_context(run_task_id, context or (old and old.context))


@animal("runs", "update.stamp", "update.stamp-alone")
class UpdateLeavesTheTime(JsonRuns):
    """An update changes the context alone. Nobody sees that the run is alive."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        old = self.get_run(run_task_id)
        super().update_context(run_task_id, context)
        if old:
            self.create_run(old.model_copy(update={"context": context}))


@animal(
    "runs",
    "update.context",
    "random.calls",
    "update.nothing-else",
    "update.whole",
    "update.falsy",
    "update.newest",
    "upsert.leaves-run",
    "steps.many",
    "aliasing.handed-over",
    "update.stamp",
    "update.stamp-alone",
)
class UpdateStartsOver(JsonRuns):
    """An update writes a new record of what it knows. When the run was created, and with what input, is lost."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        super().update_context(run_task_id, context)
        old = self.get_run(run_task_id)
        if old:
            self.create_run(old.model_copy(update={"created_at": old.updated_at, "input": {}}))


@animal("runs", "random.calls", "update.nothing-else", "steps.many", "aliasing.handed-over")
class UpdateDropsSteps(JsonRuns):
    """An update writes the run anew, and only the run. The steps that led to the new context are gone."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        super().update_context(run_task_id, context)
        with self.changed(run_task_id) as document:
            document.pop("steps", None)


@animal("runs", "update.others")
class UpdatesLikeNames(JsonRuns):
    """The run to update is looked for with LIKE 'id%'. All runs whose ids begin alike get the context."""

    def update_context(self, run_task_id: str, context: Any) -> None:
        super().update_context(run_task_id, context)
        for file in self.folder.home.glob(f"{self.name(run_task_id)[:-5]}?*.json"):
            super().update_context(file.stem, context)


@animal(
    "runs",
    "delete.forgets",
    "random.calls",
    "update.after-delete",
    "steps.begin-anew",
    "delete.steps-alone",
    "delete.then-create",
    "delete.seen-at-once",
    "ids.never-joined",
    "corrupt.heals",
)
class DeleteLeavesSteps(JsonRuns):
    """Only the run is deleted. Its steps wait for a run of the same id, which takes them for its own."""

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.changed(run_task_id) as document:
            document.pop("run", None)


@animal(
    "runs",
    "random.calls",
    "steps.begin-anew",
    "delete.steps-alone",
    "ids.never-joined",
    "corrupt.heals",
    "errors.delete",
)
class DeleteNeedsARun(JsonRuns):
    """A run that was never created is not deleted, and its steps stay."""

    def delete_run(self, run_task_id: str) -> None:
        if self.get_run(run_task_id) is not None:
            super().delete_run(run_task_id)


@animal("runs", "delete.idempotent", "random.calls", "corrupt.heals", "kill.delete", "power.delete")
class DeleteTwiceIsAnError(FileRunStore):
    """To delete a run that is not there raises KeyError. A clean-up that died half way cannot be repeated."""

    async def delete_run(self, run_task_id: str) -> None:
        if await self.get_run(run_task_id) is None and not await self.list_steps(run_task_id):
            raise KeyError(run_task_id)
        await super().delete_run(run_task_id)


@animal("runs", "delete.others")
class DeletesByPrefix(JsonRuns):
    """All files that begin with the id are deleted, to get at leftovers too. Run `aa` goes with run `a`."""

    def delete_run(self, run_task_id: str) -> None:
        super().delete_run(run_task_id)
        for file in self.folder.home.glob(f"{self.name(run_task_id)[:-5]}*"):
            file.unlink()


@animal("runs", "random.calls", "steps.begin-anew", "delete.then-create", "delete.seen-at-once", "corrupt.heals")
class DeletesSoftly(JsonRuns):
    """A deleted run is marked, and hidden while it is. Whatever is saved under its id brings all of it back."""

    def delete_run(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.changed(run_task_id) as document:
            hidden = {**document.get("hidden", {}), **document}
            hidden.pop("hidden", None)
            document.clear()
            document["hidden"] = hidden

    def create_run(self, state: WorkflowExecutionState) -> None:
        self._unhide(state.run_task_id)
        super().create_run(state)

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        self._unhide(run_task_id)
        super().upsert_step(run_task_id, step)

    def _unhide(self, run_task_id: str) -> None:
        self.check(run_task_id)
        with self.changed(run_task_id) as document:
            for name, value in document.pop("hidden", {}).items():
                if name == "steps":
                    document.setdefault(name, value)


@animal("runs", "random.calls", "delete.seen-at-once")
class DeletesOnlyForItself(JsonRuns):
    """A handle that has seen a run goes on seeing it, whoever deletes it meanwhile."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._seen: dict[str, str] = {}

    def read(self, *ids: str) -> dict[str, Any]:
        found = super().read(*ids) or json.loads(self._seen.get(ids[0], "{}"))
        self._seen[ids[0]] = json.dumps(found)
        return found

    def delete_run(self, run_task_id: str) -> None:
        super().delete_run(run_task_id)
        self._seen.pop(run_task_id, None)
