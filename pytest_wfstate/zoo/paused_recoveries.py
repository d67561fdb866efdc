"""Paused stores that recover too much, too little or too early."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.paused import PausedWorkflow, check_age
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, claim_age, run_stem
from pytest_wfstate.zoo.base import known_bad


@known_bad(
    "paused",
    "recover.paused-again recover.older-than-paused-again race.claim-recover race.complete-recover",
    "race.recover-recover race.killed-complete renew.paused-again race.killed-renew",
)
class RecoverRollsBack(FilePausedStore):
    """Recovery moves each marker back to where it was.

    A run that has paused again is rolled back to its previous stage, which is then done twice.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        for file in self.directory.glob(f"*{INFLIGHT}"):
            file.with_suffix(PAUSED).unlink(missing_ok=True)
        return super().recover_orphaned(older_than)


@known_bad(
    "paused",
    "recover.nothing remove.paused claim.others save.refused recover.paused-again recover.once recover.all",
    "complete.leaves-paused complete.paused-again ids.refused-by-all recover.older-than",
    "recover.older-than-paused-again race.claim-recover",
    "race.complete-recover race.recover-recover",
    "renew.paused-again race.recover-renew",
)
class RecoverCountsAllThatIsPaused(FilePausedStore):
    """Recovery returns how many runs are paused when it is done. It reports orphans where there are none."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        super().recover_orphaned(older_than)
        return len(self.list())


@known_bad(
    "paused",
    "recover.once ids.claimed token.new complete.token-not-handle",
)
class RecoverCountsOn(FilePausedStore):
    """Recovery returns the total of all that its handle ever recovered.

    A supervisor that recovers every minute reports the same crash again and again.
    """

    _count = 0

    def recover_orphaned(self, older_than: float | None = None) -> int:
        self._count += super().recover_orphaned(older_than)
        return self._count


@known_bad(
    "paused",
    "recover.all complete.others ids.claims-never-collide errors.recover race.complete-recover token.others",
    "race.recover-renew",
)
class RecoverStopsAtTheFirst(FilePausedStore):
    """Recovery returns as soon as it has recovered one run. The others wait for the next crash."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        with self._folder.exclusive() as held:
            for name in sorted(held.names()):
                run = name.removesuffix(INFLIGHT)
                if run != name and not held.exists(run + PAUSED) and claim_age(held, run) >= age:
                    held.rename(name, run + PAUSED)
                    held.sync()
                    return 1
        return 0


@known_bad(
    "paused",
    "recover.older-than recover.older-than-limit recover.age-of-last-claim renew.extends renew.paused-again",
)
class RecoverStealsLiveWork(FilePausedStore):
    """Recovery accepts `older_than` but ignores it. Every worker that starts takes over the work of all others."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        check_age(older_than)
        return super().recover_orphaned()


@known_bad(
    "paused",
    "recover.older-than-limit renew.extends renew.lost",
)
class RecoverWaitsTooLong(FilePausedStore):
    """A claim is recovered when it is older than the limit, but not when it is exactly as old.

    A supervisor that runs every minute recovers its orphans a minute late.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(older_than and check_age(older_than) + 1e-6)


@known_bad("paused", "recover.bad-age")
class RecoverTakesAnyAge(FilePausedStore):
    """A negative age counts as 0. A supervisor that subtracts the wrong way round takes over all live work."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(max(older_than, 0) if isinstance(older_than, (int, float)) else older_than)


@known_bad(
    "paused",
    "recover.age-of-last-claim race.claim-complete race.claim-remove race.complete-complete race.complete-recover",
    "race.complete-remove race.recover-remove",
    "power.fenced-complete errors.fenced-complete power.renew power.takeover errors.renew errors.takeover",
    "race.complete-renew race.remove-renew",
)
class AgeOfTheFirstClaim(FilePausedStore):
    """A claim's age counts from the worker's first claim on the run.

    When the worker claims the run a second time, recovery takes it away at once.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._first: dict[str, float] = {}

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            lease = self.directory / (run_stem(run_id) + LEASE)
            first = self._first.setdefault(run_id, now().timestamp())
            lease.write_text(json.dumps({**json.loads(lease.read_text()), "claimed_at": first}))
        return claimed


@known_bad("paused", "recover.offered")
class NeverRecovers(FilePausedStore):
    """Claimed runs are listed nowhere, and no method returns them. If a worker dies, its run waits forever."""

    recover_orphaned = None  # type: ignore[assignment]
