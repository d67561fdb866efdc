"""Run stores that do not keep what they are given: values, ids, and who else looks at them."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from pytest_wfstate.contracts.runs import WorkflowExecutionState, WorkflowStepState
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file import FileRunStore
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.stores.file._names import stem
from pytest_wfstate.zoo._json import JsonRuns, without_nan
from pytest_wfstate.zoo.base import animal


@animal("runs", "values.falsy")
class LosesFalsyValues(FileRunStore):
    """Fields are saved if there is something in them. An empty result is no result."""

    async def create_run(self, state: WorkflowExecutionState) -> None:
        await super().create_run(
            state.model_copy(update={"input": state.input or None, "context": state.context or None})
        )

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        await super().upsert_step(run_task_id, step.model_copy(update={"result": step.result or None}))


@animal("runs", "values.unicode", "ids.any-text", "ids.never-collide", "ids.any-step", "ids.steps-never-collide")
class DropsWhatIsNotAscii(JsonRuns):
    """A run is written as ASCII, with errors ignored. Results in other scripts come back empty."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data.decode().encode("ascii", "ignore"))


@animal("runs", "values.large")
class CutsLongRecords(JsonRuns):
    """The text of a run is cut after 65,535 characters, as it was when it lived in a MySQL column.

    A long context ruins the run.
    """

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data[:65_536])


@animal("runs", "values.refused")
class NanBecomesNone(JsonRuns):
    """Numbers that have no JSON are saved as null, so that nothing fails.

    The run goes on with a hole in its context.
    """

    def create_run(self, state: WorkflowExecutionState) -> None:
        super().create_run(state.model_copy(update={"input": without_nan(state.input)}))

    def update_context(self, run_task_id: str, context: Any) -> None:
        super().update_context(run_task_id, without_nan(context))

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step.model_copy(update={"result": without_nan(step.result)}))


@animal("runs", "ids.never-collide")
class SanitisesIds(JsonRuns):
    """What is no letter, digit or dash in a run's id is an underscore in its file's name.

    Runs `a/b` and `a b` take turns.
    """

    def name(self, *ids: str) -> str:
        return super().name(*(re.sub(r"[^\w-]", "_", one) for one in ids))


@animal("runs", "ids.never-collide", "delete.others")
class FoldsCase(JsonRuns):
    """File names are in lower case, for the sake of Windows. Run `A` and run `a` have the same steps."""

    def name(self, *ids: str) -> str:
        return super().name(*(one.lower() for one in ids))


@animal("runs", "ids.never-collide")
class CutsNamesShort(JsonRuns):
    """The first hundred characters of an id name the file.

    Runs that a scheduler named at length are all the same one.
    """

    def name(self, *ids: str) -> str:
        return stem(*(one[:100] for one in ids)) + ".json"


@animal("runs", "ids.any-text", "ids.never-collide", "ids.stay-inside", "ids.never-joined")
class JoinsPaths(JsonRuns):
    """A file is named after its run, as it is. An id with slashes leads elsewhere."""

    def name(self, *ids: str) -> str:
        return ids[0] + ".json"

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.path(name).parent.mkdir(parents=True, exist_ok=True)
        super().write(held, name, data)


@animal("runs", "ids.any-step", "ids.steps-never-collide")
class CutsStepIds(JsonRuns):
    """A step's id takes 255 characters, as the column did from which the code was taken. Long ones come back short."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        self.check(step.step_id)
        super().upsert_step(run_task_id, step.model_copy(update={"step_id": step.step_id[:255]}))

    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        self.check(step_id)
        return super().get_step(run_task_id, step_id[:255])


@animal("runs", "ids.steps-never-collide")
class TrimsStepIds(JsonRuns):
    """Step ids are compared without regard to case and blanks, as people write them.

    `Fetch` is written over `fetch`.
    """

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        alike = {name.strip().lower(): name for name in self.steps(run_task_id)}
        name = alike.get(step.step_id.strip().lower(), step.step_id)
        super().upsert_step(run_task_id, step.model_copy(update={"step_id": name}))


@animal("runs", "ids.never-joined", "kill.upsert", "power.upsert", "errors.upsert")
class JoinsRunAndStep(JsonRuns):
    """Steps are kept in one table, by run and step with a dash between them. Step `b-c` of `a` is step `c` of `a-b`."""

    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        super().upsert_step(run_task_id, step)
        with self.changed("table of steps") as table:
            table[f"{run_task_id}-{step.step_id}"] = json.loads(step.to_json())

    def steps(self, run_task_id: str) -> dict[str, WorkflowStepState]:
        table = self.read("table of steps")
        return {
            name: WorkflowStepState.model_validate({**table[f"{run_task_id}-{name}"], "step_id": name})
            for name in super().steps(run_task_id)
        }


@animal("runs", "ids.refused", "ids.refused-everywhere")
class TakesAnyId(JsonRuns):
    """Any text is an id, the empty one too. A variable that was never set is a run that all workers share."""

    def check(self, *ids: str) -> None:
        pass


@animal("runs", "ids.refused-everywhere")
class ChecksOnlyTheRun(JsonRuns):
    """The id of a run is checked, that of a step is not. An empty one is a step like any other."""

    def check(self, *ids: str) -> None:
        super().check(ids[0])


@animal("runs", "aliasing.saved", "aliasing.loaded", "aliasing.steps")
class KeepsTheCallersRun(FileRunStore):
    """What was created is kept for the next get, and handed out as it is. Who changes it changes the store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._mine: dict[str, tuple[str, WorkflowExecutionState]] = {}

    async def create_run(self, state: WorkflowExecutionState) -> None:
        await super().create_run(state)
        self._mine[state.run_task_id] = (state.to_json(), state)

    async def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        found = await super().get_run(run_task_id)
        text, mine = self._mine.get(run_task_id, ("", found))
        return mine if found and found.to_json() == text else found


@animal("runs", "aliasing.handed-over", "aliasing.steps")
class KeepsTheCallersSteps(FileRunStore):
    """What was kept is kept in the handle as well, and handed out as it is. Who changes it changes the store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._mine: dict[tuple[str, str], tuple[str, WorkflowStepState]] = {}

    async def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        await super().upsert_step(run_task_id, step)
        self._mine[run_task_id, step.step_id] = (step.to_json(), step)

    async def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        found = await super().get_step(run_task_id, step_id)
        text, mine = self._mine.get((run_task_id, step_id), ("", found))
        return mine if found and found.to_json() == text else found


@animal("runs", "handles.see-each-other", "random.calls", "upsert.seen-at-once", "delete.seen-at-once")
class NeverLooksAgain(JsonRuns):
    """A handle reads a run when it first hears of it, and trusts that ever after.

    It does again what other workers have done.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._known: dict[str, str] = {}

    def read(self, *ids: str) -> dict[str, Any]:
        if ids[0] not in self._known:
            self._known[ids[0]] = json.dumps(super().read(*ids))
        return dict(json.loads(self._known[ids[0]]))

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data)
        self._known = {run: text for run, text in self._known.items() if self.name(run) != name}

    def delete(self, *ids: str) -> None:
        super().delete(*ids)
        self._known.pop(ids[0], None)


@animal("runs", "corrupt.is-loud")
class HidesCorruptFiles(JsonRuns):
    """A run that cannot be read is one that was never created. It is started afresh, and charges the customer again."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@animal("runs", "corrupt.stays-local")
class ReadsAllFiles(JsonRuns):
    """To find a run all files are parsed, since the id is in them. One damaged file, and no run can be found."""

    def read(self, *ids: str) -> dict[str, Any]:
        for file in self.folder.home.glob("*.json"):
            self.parse(file.read_bytes())
        return super().read(*ids)


@animal("runs", "corrupt.heals")
class ReadsBeforeItDeletes(JsonRuns):
    """A run is read before it is deleted, to log what went. One that cannot be read cannot be got rid of either."""

    def delete_run(self, run_task_id: str) -> None:
        self.get_run(run_task_id)
        super().delete_run(run_task_id)
