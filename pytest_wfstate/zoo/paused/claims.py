"""Paused stores that lose track of who works on what: list, claim, complete and remove."""

from __future__ import annotations

import builtins
from pathlib import Path
from urllib.parse import unquote

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.errors import NotFound
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, PAUSED, _stem
from pytest_wfstate.zoo.base import animal


@animal(
    "paused",
    "save.replaces save.survives-restart list.sorted ids.never-collide corrupt.stays-local random.calls claim.others",
    "recover.all complete.others remove.others ids.refused-by-all ids.claims-never-collide corrupt.heals",
    "recover.older-than",
)
class ListsDownwards(FilePausedStore):
    """Ids are listed with the largest first, since the newest runs are the most interesting.

    Who pages through them from the last id it saw skips some.
    """

    def list(self) -> builtins.list[str]:
        return super().list()[::-1]


@animal("paused", "list.sorted")
class ListsOnePage(FilePausedStore):
    """The list ends after ten ids, and nobody asks for the next page. The eleventh run waits for ever."""

    def list(self) -> builtins.list[str]:
        return super().list()[:10]


@animal(
    "paused",
    "claim.takes recover.rearms claim.leaves-winner claim.replaces claim.others save.after-end recover.paused-again",
    "values.unknown list.only-paused ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers",
    "complete.not-anothers-after-save recover.older-than recover.age-of-last-claim recover.bad-age",
)
class ListsClaimedRuns(FilePausedStore):
    """Runs in flight are listed as well. A second worker takes them for paused."""

    def list(self) -> builtins.list[str]:
        claimed = [unquote(file.stem) for file in self.directory.glob(f"*{INFLIGHT}")]
        return sorted({*super().list(), *claimed})


@animal(
    "paused",
    "claim.takes recover.rearms claim.leaves-winner claim.replaces save.after-end recover.paused-again values.unknown",
    "ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save",
    "recover.older-than recover.age-of-last-claim recover.bad-age",
)
class LoadsClaimedRuns(FilePausedStore):
    """A run in flight is loaded as if it were paused. Who polls for paused runs never learns that it was taken."""

    def load(self, run_id: str) -> PausedWorkflow | None:
        name = _stem(run_id) + INFLIGHT
        data = self._folder.read(name)
        return super().load(run_id) or (PausedWorkflow.from_json(data, name) if data else None)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return super().claim(run_id) if run_id in self.list() else None


@animal(
    "paused",
    "claim.takes recover.rearms random.calls claim.one-winner claim.leaves-winner claim.keeps-record claim.replaces",
    "claim.others save.after-end recover.paused-again recover.once recover.all complete.leaves-paused",
    "complete.paused-again complete.others complete.own-again values.unknown list.only-paused ids.refused-by-all",
    "ids.claimed ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save recover.older-than",
    "recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim recover.bad-age",
)
class ClaimOnlyReads(FilePausedStore):
    """A claim gives the record and leaves it paused: it is to be removed when the work is done. Two workers do it."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return self.load(run_id)

    def complete(self, run_id: str) -> None:
        self.remove(run_id)


@animal(
    "paused",
    "recover.rearms claim.leaves-winner claim.keeps-record claim.replaces claim.others save.after-end",
    "recover.paused-again recover.once recover.all complete.others complete.own-again values.unknown",
    "ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save",
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim",
    "recover.bad-age",
)
class ClaimDeletes(FilePausedStore):
    """A claim takes the record out of the store, as out of a queue. If the worker dies, the run is lost."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused = self.load(run_id)
        self.remove(run_id)
        return paused


@animal(
    "paused",
    "claim.replaces complete.not-anothers-after-save recover.older-than-paused-again errors.claim errors.complete",
)
class ClaimRefusesAfterACrash(FilePausedStore):
    """A run that has a claim is not given out again, though it was paused anew.

    If the first worker died, nobody can ever claim it.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return None if self._folder.path(_stem(run_id) + INFLIGHT).exists() else super().claim(run_id)


@animal("paused", "claim.leaves-winner", "errors.claim", "errors.complete")
class LoserDropsTheClaim(FilePausedStore):
    """A claim first removes an old marker as stale.

    Who comes too late removes the marker of the worker that won, and with it the only copy of the record.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        (self.directory / (_stem(run_id) + INFLIGHT)).unlink(missing_ok=True)
        return super().claim(run_id)


@animal("paused", "claim.missing", "random.calls", "claim.one-winner", "claim.leaves-winner")
class ClaimOfNothingIsAnError(FilePausedStore):
    """To claim a run that is not paused is an error. Every worker that loses a race fails."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed is None:
            raise NotFound(f"run {run_id!r} is not paused")
        return claimed


@animal("paused", "complete.own-again")
class ClaimKeepsItsFirstToken(FilePausedStore):
    """A handle keeps the token of its first claim of a run.

    When it claims the run again, it is a stranger to its own claim, and cannot complete it.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        first = self._claimed.get(run_id)
        claimed = super().claim(run_id)
        if first:
            self._claimed[run_id] = first
        return claimed


@animal("paused", "claim.others", "complete.others", "ids.claims-never-collide")
class ClaimTakesAllThatBeginAlike(FilePausedStore):
    """A claim moves every file that begins with the id. `run-1` takes `run-10` along, which nobody works on."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        for other in [one for one in self.list() if claimed and one.startswith(run_id)]:
            super().claim(other)
        return claimed


@animal("paused", "complete.not-anothers", "complete.not-anothers-after-save")
class CompleteFreesTheClaimOfAnother(FilePausedStore):
    """Whoever completes a run drops its marker.

    A worker that was thought dead completes late, and the worker that took over has no claim any more.
    """

    def complete(self, run_id: str) -> None:
        self._claimed.pop(run_id, None)
        super().complete(run_id)


@animal("paused", "complete.after-restart")
class CompleteNeedsTheClaim(FilePausedStore):
    """A handle completes only what it has claimed itself.

    A worker that was restarted cannot finish up, and the run is done once more.
    """

    def complete(self, run_id: str) -> None:
        if run_id in self._claimed:
            super().complete(run_id)
        else:
            _stem(run_id)


@animal("paused", "random.calls", "complete.idempotent", "complete.leaves-paused", "ids.claims-never-collide")
class CompleteTwiceIsAnError(FilePausedStore):
    """To complete what is not in flight is an error. A worker that repeats the call after a lost answer fails."""

    def complete(self, run_id: str) -> None:
        if not (self.directory / (_stem(run_id) + INFLIGHT)).exists():
            raise NotFound(f"run {run_id!r} is not in flight")
        super().complete(run_id)


@animal(
    "paused",
    "complete.ends complete.idempotent complete.after-restart complete.others complete.own-again ids.claimed",
)
class CompleteForgets(FilePausedStore):
    """A handle notes that a run is done, and leaves the marker to be cleaned up some day.

    Before that, a recovery brings the run back.
    """

    def complete(self, run_id: str) -> None:
        _stem(run_id)
        self._claimed.pop(run_id, None)


@animal(
    "paused",
    "random.calls complete.leaves-paused complete.paused-again ids.claims-never-collide kill.complete power.complete",
    "errors.complete",
)
class CompleteRemoves(FilePausedStore):
    """A completed run is removed altogether. One that has paused again at its next stage is lost."""

    def complete(self, run_id: str) -> None:
        super().complete(run_id)
        if run_id not in self._claimed or not (self.directory / (_stem(run_id) + INFLIGHT)).exists():
            (self.directory / (_stem(run_id) + PAUSED)).unlink(missing_ok=True)


@animal("paused", "complete.others")
class CompleteClearsAllThatBeginAlike(FilePausedStore):
    """The markers of all runs that begin with the id are dropped.

    `run-1` is done, and `run-10` can no longer be recovered.
    """

    def complete(self, run_id: str) -> None:
        super().complete(run_id)
        for marker in self.directory.glob(f"{_stem(run_id)}*{INFLIGHT}"):
            if marker.stem != _stem(run_id):
                marker.unlink()


@animal("paused", "complete.others", "ids.claims-never-collide")
class CompleteFreesTheWorker(FilePausedStore):
    """A worker has one claim at a time, so completing a run clears all claims of the handle.

    The other runs that it had taken are lost.
    """

    def complete(self, run_id: str) -> None:
        for claimed in [run_id, *self._claimed]:
            super().complete(claimed)


@animal("paused", "save.after-end", "complete.own-again")
class DoneIsForEver(FilePausedStore):
    """A run that was completed is noted as done, lest a late save bring it back.

    A run that is started again under its old id can never pause.
    """

    def save(self, paused: PausedWorkflow) -> None:
        if not (self.directory / f"{_stem(paused.run_id)}.done").exists():
            super().save(paused)

    def complete(self, run_id: str) -> None:
        super().complete(run_id)
        if self.directory.exists() and run_id in self._claimed:
            (self.directory / f"{_stem(run_id)}.done").touch()


@animal("paused", "remove.claimed", "remove.both")
class RemoveForgetsTheClaim(FilePausedStore):
    """Only the paused record is removed. If a worker had claimed the run, the next recovery brings it back."""

    def remove(self, run_id: str) -> None:
        with self._folder.exclusive() as held:
            held.unlink(_stem(run_id) + PAUSED)
            held.sync()


@animal(
    "paused",
    "remove.idempotent random.calls save.after-end remove.claimed remove.others recover.older-than-paused-again",
)
class RemoveTwiceIsAnError(FilePausedStore):
    """To remove a run that is not there is an error. A clean-up that was interrupted cannot be repeated."""

    def remove(self, run_id: str) -> None:
        (self.directory / (_stem(run_id) + INFLIGHT)).unlink(missing_ok=True)
        try:
            (self.directory / (_stem(run_id) + PAUSED)).unlink()
        except FileNotFoundError:
            raise NotFound(f"run {run_id!r} is not paused") from None


@animal("paused", "remove.others")
class RemoveTakesAPattern(FilePausedStore):
    """Files are removed by a pattern made of the id. `run-1` takes `run-10` along."""

    def remove(self, run_id: str) -> None:
        super().remove(run_id)
        for file in self.directory.glob(f"{_stem(run_id)}*"):
            file.unlink()


@animal("paused", "ids.refused-by-all")
class EmptyIdRemovesAll(FilePausedStore):
    """To remove a run without an id removes all of them. A caller that lost its id loses everybody's runs."""

    def remove(self, run_id: str) -> None:
        for one in [run_id] if run_id else self.list():
            super().remove(one)


@animal("paused", "remove.paused", "random.calls", "remove.claimed", "remove.both", "corrupt.heals")
class RemoveHides(FilePausedStore):
    """A removed run is hidden by the handle that removed it, and its file is left to a clean-up.

    After a restart it is there again.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._hidden: set[str] = set()

    def remove(self, run_id: str) -> None:
        self._hidden.add(_stem(run_id))

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        self._hidden.discard(_stem(paused.run_id))

    def load(self, run_id: str) -> PausedWorkflow | None:
        return None if _stem(run_id) in self._hidden else super().load(run_id)

    def list(self) -> builtins.list[str]:
        return [run_id for run_id in super().list() if _stem(run_id) not in self._hidden]
