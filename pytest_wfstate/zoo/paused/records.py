"""Paused stores that do not keep what they are given: values, ids, and who else looks at them."""

from __future__ import annotations

import builtins
import json
import re
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.paused import PausedWorkflow, Workflow
from pytest_wfstate.errors import CorruptRecord, NotFound
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, PAUSED, _stem
from pytest_wfstate.stores.memory import MemoryPausedStore
from pytest_wfstate.stores.memory.paused import Claim
from pytest_wfstate.zoo.base import animal


@animal(
    "paused",
    "save.survives-restart list.sorted recover.rearms remove.paused handles.see-each-other values.falsy",
    "values.unicode values.large ids.any-text ids.never-collide aliasing.saved aliasing.loaded random.calls",
    "claim.leaves-winner claim.keeps-record claim.replaces save.after-end save.refused save.while-claimed",
    "recover.paused-again recover.once recover.all complete.leaves-paused complete.paused-again complete.others",
    "values.unknown list.only-paused ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers",
    "complete.not-anothers-after-save recover.older-than recover.older-than-limit recover.older-than-paused-again",
    "recover.bad-age",
)
class KeepsRunsInMemory(MemoryPausedStore):
    """Runs are kept in a dictionary until there is time to write the file code. A restart loses them all."""

    def __init__(self, _: Path) -> None:
        super().__init__()


@animal(
    "paused",
    "handles.see-each-other aliasing.saved aliasing.loaded random.calls claim.replaces kill.save kill.claim",
    "kill.complete kill.recover kill.remove complete.not-anothers complete.not-anothers-after-save recover.older-than",
    "recover.older-than-limit recover.older-than-paused-again power.save errors.save power.claim errors.claim",
    "power.complete errors.complete power.recover errors.recover power.remove errors.remove",
)
class WritesWhenClosed(MemoryPausedStore):
    """All runs are read from a file when the store is opened, and written back when it is closed.

    A process that is killed never closes it, and two workers see nothing of each other.
    """

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._file = home / "runs.json"
        if self._file.exists():
            self._paused, inflight = json.loads(self._file.read_text())
            self._inflight = {run_id: Claim(record, object(), now()) for run_id, record in inflight.items()}

    def close(self) -> None:
        claimed = {run_id: claim.record for run_id, claim in self._inflight.items()}
        self._file.write_text(json.dumps([self._paused, claimed]))


@animal("paused", "handles.see-each-other")
class LooksOnce(FilePausedStore):
    """A handle remembers what it has read, and reads it again only if it changed it itself.

    What another worker saves it never sees.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._seen: dict[str, str] = {}

    def load(self, run_id: str) -> PausedWorkflow | None:
        if run_id not in self._seen:
            paused = super().load(run_id)
            if paused is None:
                return None
            self._seen[run_id] = paused.to_json()
        return PausedWorkflow.from_json(self._seen[run_id], run_id)

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        self._seen.pop(paused.run_id, None)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        self._seen.pop(run_id, None)
        claimed = super().claim(run_id)
        self._seen.pop(run_id, None)
        return claimed

    def remove(self, run_id: str) -> None:
        super().remove(run_id)
        self._seen.pop(run_id, None)


@animal(
    "paused",
    "save.replaces save.survives-restart handles.see-each-other random.calls save.refused corrupt.heals errors.save",
)
class KeepsTheFirst(FilePausedStore):
    """A record is written only if there is none yet, so that two workers do not write over each other.

    A run that pauses at a later stage is resumed at the earlier one.
    """

    def save(self, paused: PausedWorkflow) -> None:
        if self.load(paused.run_id) is None:
            super().save(paused)


@animal(
    "paused",
    "claim.replaces save.while-claimed recover.paused-again complete.paused-again complete.not-anothers-after-save",
    "recover.older-than-paused-again",
)
class SavesIntoTheClaim(FilePausedStore):
    """The record of a run in flight is replaced where it is.

    A run that pauses again is not paused until its worker dies.
    """

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        marker = self.directory / (_stem(paused.run_id) + INFLIGHT)
        if marker.exists():
            marker.with_suffix(PAUSED).rename(marker)


@animal(
    "paused",
    "load.missing save.load claim.takes complete.ends recover.rearms remove.paused remove.idempotent",
    "ids.never-collide random.calls claim.leaves-winner claim.replaces save.after-end save.refused",
    "recover.paused-again recover.once complete.idempotent complete.leaves-paused complete.paused-again",
    "complete.after-restart complete.others complete.own-again remove.claimed remove.both values.unknown",
    "ids.refused-by-all ids.claimed ids.claims-never-collide corrupt.heals complete.not-anothers",
    "complete.not-anothers-after-save recover.older-than recover.age-of-last-claim recover.bad-age",
)
class MissingIsAnError(FilePausedStore):
    """A run that is not paused is an error when it is loaded. Every caller that asks "is it paused?" breaks."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        paused = super().load(run_id)
        if paused is None:
            raise NotFound(f"run {run_id!r} is not paused")
        return paused

    def claim(self, run_id: str) -> PausedWorkflow | None:
        try:
            return super().claim(run_id)
        except NotFound:
            return None


@animal(
    "paused",
    "save.load claim.takes recover.rearms remove.paused ids.never-collide random.calls claim.leaves-winner",
    "claim.replaces save.after-end save.refused recover.paused-again recover.once complete.leaves-paused",
    "complete.paused-again values.unknown ids.refused-by-all ids.claims-never-collide corrupt.heals",
    "complete.not-anothers complete.not-anothers-after-save recover.older-than recover.bad-age",
)
class AnyIdWillDo(FilePausedStore):
    """If a single run is paused, it is given for any id, since people want to resume "the" run.

    A worker that asks for one run resumes another.
    """

    def load(self, run_id: str) -> PausedWorkflow | None:
        files = list(self.directory.glob(f"*{PAUSED}"))
        return PausedWorkflow.from_json(files[0].read_bytes(), files[0]) if len(files) == 1 else super().load(run_id)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return super().claim(run_id) if run_id in self.list() else None


@animal("paused", "values.unknown")
class DropsWhatItDoesNotKnow(FilePausedStore):
    """The workflow is copied field by field, as far as its fields are known here.

    What a newer framework has added is gone when the run resumes.
    """

    def save(self, paused: PausedWorkflow) -> None:
        fields = paused.workflow.model_dump(by_alias=True, exclude_unset=True)
        known = {name: value for name, value in fields.items() if name in Workflow.model_fields}
        super().save(paused.model_copy(update={"workflow": Workflow.model_validate(known)}))


@animal("paused", "values.falsy")
class DropsFalsyValues(FilePausedStore):
    """Values of the state are written `if value`, to keep the file small. Zero, false and "" are gone."""

    def save(self, paused: PausedWorkflow) -> None:
        state = {name: value for name, value in paused.wf_state.items() if value}
        super().save(paused.model_copy(update={"wf_state": state}))


@animal("paused", "values.unicode")
class WritesAscii(FilePausedStore):
    """The prompt is written in ASCII, and what does not fit is left out. A human is asked to approve something else."""

    def save(self, paused: PausedWorkflow) -> None:
        prompt = paused.prompt.encode("ascii", "ignore").decode()
        super().save(paused.model_copy(update={"prompt": prompt}))


@animal("paused", "values.large")
class CutsLongText(FilePausedStore):
    """Text ends at 64 KiB, as in a column of that type that cuts without a word. Long documents lose their end."""

    def save(self, paused: PausedWorkflow) -> None:
        state = {name: value[:65_536] if isinstance(value, str) else value for name, value in paused.wf_state.items()}
        super().save(paused.model_copy(update={"wf_state": state}))


@animal("paused", "aliasing.saved", "aliasing.loaded")
class KeepsWhatWasSaved(FilePausedStore):
    """A handle keeps the object that was saved, and gives it back while the file still holds its text.

    The caller goes on with its object, and changes what others load.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._parsed: dict[bytes | None, PausedWorkflow] = {}

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        self._parsed[self._folder.read(_stem(paused.run_id) + PAUSED)] = paused

    def load(self, run_id: str) -> PausedWorkflow | None:
        return self._parsed.get(self._folder.read(_stem(run_id) + PAUSED)) or super().load(run_id)


@animal("paused", "aliasing.loaded")
class GivesTheSameTwice(FilePausedStore):
    """A handle parses each text once, and gives the same object to all who load it.

    One caller changes what the next one gets.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._parsed: dict[str, PausedWorkflow] = {}

    def load(self, run_id: str) -> PausedWorkflow | None:
        paused = super().load(run_id)
        return paused and self._parsed.setdefault(paused.to_json(), paused)


class _RenamesRuns(FilePausedStore):
    """Writes a run under a name that it makes of the id."""

    def name(self, run_id: str) -> str:
        raise NotImplementedError

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused.model_copy(update={"run_id": self.name(paused.run_id)}))

    def load(self, run_id: str) -> PausedWorkflow | None:
        paused = super().load(self.name(run_id))
        return paused and paused.model_copy(update={"run_id": run_id})


@animal(
    "paused",
    "ids.any-text ids.never-collide ids.refused ids.refused-by-all ids.claimed ids.claims-never-collide",
)
class SanitisesIds(_RenamesRuns):
    """What is no letter, digit, - or _ in an id is made a _ in its file's name. `a/b` and `a_b` share a file."""

    def name(self, run_id: str) -> str:
        return re.sub(r"[^a-zA-Z0-9_-]", "_", run_id)


@animal("paused", "ids.any-text", "ids.never-collide", "ids.claimed", "ids.claims-never-collide")
class FoldsCase(_RenamesRuns):
    """Ids are made lower case, since some disks know no other. `Run` and `run` share a file."""

    def name(self, run_id: str) -> str:
        return run_id.lower()


@animal(
    "paused",
    "ids.any-text ids.never-collide ids.refused ids.refused-by-all ids.claimed ids.claims-never-collide",
)
class CutsLongIds(_RenamesRuns):
    """Names of files end after 64 characters. Long ids that begin alike share a file."""

    def name(self, run_id: str) -> str:
        return run_id[:64]


@animal("paused", "ids.refused", "ids.refused-by-all")
class EmptyIdIsADefault(_RenamesRuns):
    """An empty id stands for the run `default`. A caller that lost its id gets the run of another that lost it too."""

    def name(self, run_id: str) -> str:
        return run_id or "default"


@animal(
    "paused",
    "ids.any-text ids.never-collide ids.stay-inside ids.refused ids.refused-by-all ids.claimed",
    "ids.claims-never-collide",
)
class SlashesAreFolders(FilePausedStore):
    """A slash in an id makes a folder. `../x` is written beside the store, and `a/b` where `list` never looks."""

    def save(self, paused: PausedWorkflow) -> None:
        path = self.directory / paused.run_id
        FilePausedStore(path.parent).save(paused.model_copy(update={"run_id": path.name}))

    def load(self, run_id: str) -> PausedWorkflow | None:
        path = self.directory / run_id
        paused = FilePausedStore(path.parent).load(path.name)
        return paused and paused.model_copy(update={"run_id": run_id})


@animal("paused", "corrupt.is-loud", "corrupt.claim")
class CorruptIsMissing(FilePausedStore):
    """A record that cannot be read is taken to be missing. The run is started afresh, and pays again."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        try:
            return super().load(run_id)
        except CorruptRecord:
            return None


@animal("paused", "corrupt.stays-local")
class ListReadsEverything(FilePausedStore):
    """Ids are listed from inside the records. One that cannot be read hides all the others."""

    def list(self) -> builtins.list[str]:
        files = sorted(self.directory.glob("*.json"))
        return sorted(PausedWorkflow.from_json(file.read_bytes(), file).run_id for file in files)


@animal("paused", "corrupt.heals")
class SaveReadsFirst(FilePausedStore):
    """A save reads the old record first, to log what has changed.

    If that cannot be read, the run can never be saved again.
    """

    def save(self, paused: PausedWorkflow) -> None:
        self._was: Any = self.load(paused.run_id)
        super().save(paused)


@animal("paused", "corrupt.claim")
class CorruptIsStuck(FilePausedStore):
    """A claim moves the file before it reads it.

    A record that cannot be read ends up in flight: it counts as claimed, and every recovery brings it back.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        run = _stem(run_id)
        try:
            return super().claim(run_id)
        except CorruptRecord:
            with self._folder.exclusive() as held:
                held.rename(run + PAUSED, run + INFLIGHT)
            raise
