"""Paused stores that recover too much, too little, or too early."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.paused import PausedWorkflow, check_age
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, _age, _stem
from pytest_wfstate.zoo.base import animal


@animal(
    "paused",
    "recover.paused-again recover.older-than-paused-again race.save-claim race.claim-recover race.complete-recover",
    "race.recover-recover race.killed-save race.killed-complete",
)
class RecoverRollsBack(FilePausedStore):
    """A recovery moves each marker back to where it came from.

    A run that was paused again meanwhile is rolled back to the stage before, and does it twice.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        for file in self.directory.glob(f"*{INFLIGHT}"):
            file.with_suffix(PAUSED).unlink(missing_ok=True)
        return super().recover_orphaned(older_than)


@animal(
    "paused",
    "recover.nothing remove.paused claim.others save.refused recover.paused-again recover.once recover.all",
    "complete.leaves-paused complete.paused-again ids.refused-by-all recover.older-than",
    "recover.older-than-paused-again race.save-claim race.save-complete race.save-remove race.claim-recover",
    "race.complete-recover race.recover-recover race.killed-save race.killed-claim race.killed-recover",
)
class RecoverCountsAllThatIsPaused(FilePausedStore):
    """A recovery returns how many runs are paused when it is done. It tells of orphans where there are none."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        super().recover_orphaned(older_than)
        return len(self.list())


@animal("paused", "recover.once ids.claimed")
class RecoverCountsOn(FilePausedStore):
    """A handle counts all that it ever recovered.

    A supervisor that recovers every minute reports the same crash again and again.
    """

    _count = 0

    def recover_orphaned(self, older_than: float | None = None) -> int:
        self._count += super().recover_orphaned(older_than)
        return self._count


@animal(
    "paused",
    "recover.all complete.others ids.claims-never-collide errors.recover race.complete-recover",
)
class RecoverStopsAtTheFirst(FilePausedStore):
    """A recovery returns as soon as it has recovered a run. The others wait for the next crash."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        with self._folder.exclusive() as held:
            for name in sorted(held.names()):
                run = name.removesuffix(INFLIGHT)
                if run != name and not held.exists(run + PAUSED) and _age(held, run) >= age:
                    held.rename(name, run + PAUSED)
                    held.sync()
                    return 1
        return 0


@animal("paused", "recover.older-than recover.older-than-limit recover.age-of-last-claim")
class RecoverStealsLiveWork(FilePausedStore):
    """A recovery takes `older_than` and does not look at it. Every worker that starts takes the work of all others."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        check_age(older_than)
        return super().recover_orphaned()


@animal("paused", "recover.older-than-limit")
class RecoverWaitsTooLong(FilePausedStore):
    """A claim is recovered when it is older than asked for, not when it is as old.

    A supervisor that comes round every minute finds its orphans a minute late.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(older_than and check_age(older_than) + 1e-6)


@animal("paused", "recover.bad-age")
class RecoverTakesAnyAge(FilePausedStore):
    """A negative age counts as none. A supervisor that subtracts its times the wrong way round takes all live work."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(max(older_than, 0) if isinstance(older_than, (int, float)) else older_than)


@animal(
    "paused",
    "recover.age-of-last-claim race.claim-complete race.claim-recover race.claim-remove race.complete-complete",
    "race.complete-recover race.complete-remove race.recover-recover race.recover-remove",
)
class AgeOfTheFirstClaim(FilePausedStore):
    """A worker notes when it first claimed a run, and goes by that.

    A run that it claims for the second time is taken from it at once.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._first: dict[str, float] = {}

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            lease = self.directory / (_stem(run_id) + LEASE)
            first = self._first.setdefault(run_id, now().timestamp())
            lease.write_text(json.dumps({**json.loads(lease.read_text()), "claimed_at": first}))
        return claimed
