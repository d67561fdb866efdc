"""Paused stores that lose track of who works on what: claim and complete."""

from __future__ import annotations

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.errors import CorruptRecord, NotFound
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, PAUSED, _stem
from pytest_wfstate.zoo.base import animal


@animal(
    "paused",
    "claim.takes recover.rearms claim.one-winner claim.leaves-winner claim.keeps-record claim.replaces claim.others",
    "save.after-end recover.paused-again recover.once recover.all complete.leaves-paused complete.paused-again",
    "complete.others complete.own-again values.unknown list.only-paused ids.refused-by-all ids.claimed",
    "ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save recover.older-than",
    "recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim recover.bad-age",
    "race.save-complete race.complete-complete race.complete-recover race.load race.list race.killed-save",
    "race.killed-claim race.killed-complete race.killed-recover race.killed-remove",
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
    "recover.bad-age race.save-complete race.claim-complete race.complete-complete race.complete-recover",
    "race.killed-save race.killed-claim race.killed-complete race.killed-recover race.killed-remove",
)
class ClaimDeletes(FilePausedStore):
    """A claim takes the record out of the store, as out of a queue. If the worker dies, the run is lost."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused = self.load(run_id)
        self.remove(run_id)
        return paused


@animal(
    "paused",
    "claim.leaves-winner errors.claim errors.complete race.claim-recover race.complete-recover race.recover-recover",
    "race.killed-claim race.killed-complete race.killed-recover",
)
class LoserDropsTheClaim(FilePausedStore):
    """A claim first removes an old marker as stale.

    Who comes too late removes the marker of the worker that won, and with it the only copy of the record.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        (self.directory / (_stem(run_id) + INFLIGHT)).unlink(missing_ok=True)
        return super().claim(run_id)


@animal(
    "paused",
    "claim.missing claim.one-winner claim.leaves-winner race.claim-recover race.claim-remove race.complete-remove",
    "race.recover-recover race.recover-remove race.killed-claim race.killed-complete race.killed-recover",
)
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


@animal(
    "paused",
    "claim.others complete.others ids.claims-never-collide race.save-claim race.save-complete race.save-recover",
    "race.claim-recover race.complete-recover race.recover-recover",
)
class ClaimTakesAllThatBeginAlike(FilePausedStore):
    """A claim moves every file that begins with the id. `run-1` takes `run-10` along, which nobody works on."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        for other in [one for one in self.list() if claimed and one.startswith(run_id)]:
            super().claim(other)
        return claimed


@animal(
    "paused",
    "complete.not-anothers complete.not-anothers-after-save race.complete-recover",
)
class CompleteFreesTheClaimOfAnother(FilePausedStore):
    """Whoever completes a run drops its marker.

    A worker that was thought dead completes late, and the worker that took over has no claim any more.
    """

    def complete(self, run_id: str) -> None:
        self._claimed.pop(run_id, None)
        super().complete(run_id)


@animal(
    "paused",
    "complete.after-restart race.complete-recover race.killed-complete",
)
class CompleteNeedsTheClaim(FilePausedStore):
    """A handle completes only what it has claimed itself.

    A worker that was restarted cannot finish up, and the run is done once more.
    """

    def complete(self, run_id: str) -> None:
        if run_id in self._claimed:
            super().complete(run_id)
        else:
            _stem(run_id)


@animal(
    "paused",
    "complete.idempotent complete.leaves-paused ids.claims-never-collide race.complete-recover race.complete-remove",
    "race.killed-complete",
)
class CompleteTwiceIsAnError(FilePausedStore):
    """To complete what is not in flight is an error. A worker that repeats the call after a lost answer fails."""

    def complete(self, run_id: str) -> None:
        if not (self.directory / (_stem(run_id) + INFLIGHT)).exists():
            raise NotFound(f"run {run_id!r} is not in flight")
        super().complete(run_id)


@animal(
    "paused",
    "complete.ends complete.idempotent complete.after-restart complete.others complete.own-again ids.claimed",
    "race.killed-complete race.killed-remove",
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
    "complete.leaves-paused complete.paused-again ids.claims-never-collide kill.complete power.complete",
    "errors.complete race.save-complete race.complete-recover",
)
class CompleteRemoves(FilePausedStore):
    """A completed run is removed altogether. One that has paused again at its next stage is lost."""

    def complete(self, run_id: str) -> None:
        super().complete(run_id)
        if run_id not in self._claimed or not (self.directory / (_stem(run_id) + INFLIGHT)).exists():
            (self.directory / (_stem(run_id) + PAUSED)).unlink(missing_ok=True)


@animal("paused", "complete.others ids.claims-never-collide")
class CompleteFreesTheWorker(FilePausedStore):
    """A worker has one claim at a time, so completing a run clears all claims of the handle.

    The other runs that it had taken are lost.
    """

    def complete(self, run_id: str) -> None:
        for claimed in [run_id, *self._claimed]:
            super().complete(claimed)


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
