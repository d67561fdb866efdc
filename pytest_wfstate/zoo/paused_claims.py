"""Paused stores that lose track of who works on what: claim and complete."""

from __future__ import annotations

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.errors import CorruptRecord, NotFound
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, PAUSED, run_stem
from pytest_wfstate.stores.own_claims import OwnClaims
from pytest_wfstate.zoo.base import known_bad


@known_bad(
    "paused",
    "claim.takes recover.rearms claim.one-winner claim.leaves-winner claim.keeps-record claim.replaces claim.others",
    "save.after-end recover.paused-again recover.once recover.all complete.leaves-paused complete.paused-again",
    "complete.others complete.own-again values.unknown list.only-paused ids.refused-by-all ids.claimed",
    "ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save recover.older-than",
    "recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim recover.bad-age",
    "race.save-complete race.complete-complete",
    "token.kept token.own token.new",
    "complete.token complete.token-lost complete.token-not-handle complete.token-paused-again complete.token-once",
    "token.others token.refused renew.extends renew.lost renew.ended renew.paused-again",
)
class ClaimOnlyReads(FilePausedStore):
    """A claim returns the record but leaves the run paused until the work is done. Two workers do the same work."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return self.load(run_id)

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        self.remove(run_id)


@known_bad(
    "paused",
    "recover.rearms claim.leaves-winner claim.keeps-record claim.replaces claim.others save.after-end",
    "recover.paused-again recover.once recover.all complete.others complete.own-again values.unknown",
    "ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save",
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim",
    "recover.bad-age race.save-complete race.claim-complete race.complete-complete race.complete-recover",
    "token.kept",
    "token.own token.new complete.token complete.token-lost complete.token-not-handle complete.token-paused-again",
    "complete.token-once token.others token.refused renew.extends renew.lost renew.ended renew.paused-again",
    "race.complete-renew",
)
class ClaimDeletes(FilePausedStore):
    """A claim takes the record out of the store, as if from a queue. If the worker dies, the run is lost."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused = self.load(run_id)
        self.remove(run_id)
        return paused


@known_bad(
    "paused",
    "claim.leaves-winner errors.claim errors.complete race.claim-recover race.complete-recover race.recover-recover",
    "race.killed-complete errors.fenced-complete errors.renew kill.takeover",
    "power.takeover errors.takeover race.complete-renew race.renew-renew",
)
class LoserDropsTheClaim(FilePausedStore):
    """A claim first removes any existing marker as stale.

    The loser of a race removes the winner's marker, and with it the only copy of the record.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        (self.directory / (run_stem(run_id) + INFLIGHT)).unlink(missing_ok=True)
        return super().claim(run_id)


@known_bad(
    "paused",
    "claim.missing claim.one-winner claim.leaves-winner",
    "race.recover-recover token.own",
)
class ClaimOfNothingIsAnError(FilePausedStore):
    """Claiming a run that is not paused raises an error. Every worker that loses a race fails."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed is None:
            raise NotFound(f"run {run_id!r} is not paused")
        return claimed


@known_bad(
    "paused",
    "complete.own-again token.new complete.token complete.token-not-handle",
)
class ClaimKeepsItsFirstToken(FilePausedStore):
    """A handle keeps the token of its first claim on a run.

    After it claims the run again, it does not recognize its own claim and cannot complete it.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        first = self._claims.needed(run_id)
        claimed = super().claim(run_id)
        if first is not None:
            self._claims.finished(run_id, self._claims.tokens(run_id))
            self._claims.made(run_id, first[0] if first else OwnClaims.new_token())
        return claimed


@known_bad(
    "paused",
    "claim.others complete.others ids.claims-never-collide race.save-claim race.save-complete race.save-recover",
    "race.claim-recover race.complete-recover race.recover-recover race.recover-renew race.save-renew",
)
class ClaimTakesAllThatBeginAlike(FilePausedStore):
    """A claim moves every file whose name starts with the id.

    Claiming `run-1` also takes `run-10`, which no worker is working on.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        for other in [paused for paused in self.list() if claimed and paused.startswith(run_id)]:
            super().claim(other)
        return claimed


@known_bad(
    "paused",
    "complete.not-anothers complete.not-anothers-after-save race.complete-recover token.kept",
)
class CompleteFreesTheClaimOfAnother(FilePausedStore):
    """Completing a run drops its marker, whoever made it.

    A worker presumed dead completes late, and the worker that took over loses its claim.
    """

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        self._claims = OwnClaims()
        super().complete(run_id)


@known_bad("paused", "complete.after-restart")
class CompleteNeedsTheClaim(FilePausedStore):
    """A handle completes only the runs that it claimed itself.

    A restarted worker cannot complete its run, which is then done a second time.
    """

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        if self._claims.needed(run_id) is not None:
            super().complete(run_id)
        else:
            run_stem(run_id)


@known_bad(
    "paused",
    "complete.idempotent complete.leaves-paused ids.claims-never-collide race.complete-recover",
)
class CompleteTwiceIsAnError(FilePausedStore):
    """Completing a run that is not in flight raises an error. A worker that retries after a lost response fails."""

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        if not (self.directory / (run_stem(run_id) + INFLIGHT)).exists():
            raise NotFound(f"run {run_id!r} is not in flight")
        super().complete(run_id)


@known_bad(
    "paused",
    "complete.ends complete.idempotent complete.after-restart complete.others complete.own-again ids.claimed",
    "race.killed-remove token.kept renew.ended",
)
class CompleteForgets(FilePausedStore):
    """Completing a run only clears the handle's memory; its marker is left for a later cleanup.

    Until then, recovery brings the run back.
    """

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        run_stem(run_id)
        self._claims = OwnClaims()


@known_bad(
    "paused",
    "complete.leaves-paused complete.paused-again ids.claims-never-collide power.complete",
    "race.save-complete race.complete-recover",
)
class CompleteRemoves(FilePausedStore):
    """Completing a run removes it altogether. A run that has paused again at its next stage is lost."""

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        super().complete(run_id)
        if self._claims.needed(run_id) is None or not (self.directory / (run_stem(run_id) + INFLIGHT)).exists():
            (self.directory / (run_stem(run_id) + PAUSED)).unlink(missing_ok=True)


@known_bad(
    "paused",
    "complete.others ids.claims-never-collide token.kept",
)
class CompleteFreesTheWorker(FilePausedStore):
    """Completing a run clears all claims of the handle, as if a worker could only have one.

    The other runs that it had claimed are lost.
    """

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self._runs: set[str] = set()

    def claim(self, run_id: str) -> PausedWorkflow | None:
        self._runs.add(run_id)
        return super().claim(run_id)

    def complete(self, run_id: str) -> None:  # type: ignore[override] # it has no fencing
        for claimed in {run_id, *self._runs}:
            super().complete(claimed)


@known_bad("paused", "corrupt.claim")
class CorruptIsStuck(FilePausedStore):
    """A claim moves the file before it reads it.

    An unreadable record ends up in flight: it counts as claimed, and every recovery brings it back.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        run = run_stem(run_id)
        try:
            return super().claim(run_id)
        except CorruptRecord:
            with self._folder.exclusive() as held:
                held.rename(run + PAUSED, run + INFLIGHT)
            raise
