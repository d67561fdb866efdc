"""Paused stores that recover too much, too little, or too early."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.paused import PausedWorkflow, check_age
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, _age, _stem
from pytest_wfstate.zoo.base import animal


@animal("paused", "recover.paused-again", "recover.older-than-paused-again")
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
    "recover.rearms claim.leaves-winner claim.keeps-record claim.replaces claim.others save.after-end",
    "recover.paused-again recover.once recover.all complete.others complete.own-again values.unknown",
    "ids.refused-by-all ids.claimed ids.claims-never-collide complete.not-anothers complete.not-anothers-after-save",
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim",
    "recover.bad-age",
)
class RecoverForgets(FilePausedStore):
    """A recovery clears the claims away and counts them, and forgets to pause their runs again."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        paused = self.list()
        count = super().recover_orphaned(older_than)
        for run_id in set(self.list()) - set(paused):
            self.remove(run_id)
        return count


@animal("paused", "recover.paused-again", "recover.older-than-paused-again")
class RecoverCountsWhatItDrops(FilePausedStore):
    """A recovery counts every marker, also those of runs that were paused again and need none.

    It tells of two runs where there is one.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        dropped = [file for file in self.directory.glob(f"*{INFLIGHT}") if file.with_suffix(PAUSED).exists()]
        return super().recover_orphaned(older_than) + len(dropped)


@animal(
    "paused",
    "recover.nothing remove.paused random.calls claim.others save.refused recover.paused-again recover.once",
    "recover.all complete.leaves-paused complete.paused-again ids.refused-by-all recover.older-than",
    "recover.older-than-paused-again",
)
class RecoverCountsAllThatIsPaused(FilePausedStore):
    """A recovery returns how many runs are paused when it is done. It tells of orphans where there are none."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        super().recover_orphaned(older_than)
        return len(self.list())


@animal("paused", "recover.once", "ids.claimed")
class RecoverCountsOn(FilePausedStore):
    """A handle counts all that it ever recovered.

    A supervisor that recovers every minute reports the same crash again and again.
    """

    _count = 0

    def recover_orphaned(self, older_than: float | None = None) -> int:
        self._count += super().recover_orphaned(older_than)
        return self._count


@animal("paused", "recover.all", "complete.others", "ids.claims-never-collide", "errors.recover")
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


@animal("paused", "ids.claimed", "ids.claims-never-collide")
class RecoverRenames(FilePausedStore):
    """A recovery decodes the id from the name of the marker, and pauses the run under that, no longer encoded.

    Runs with plain ids come back, all others are lost from sight.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        claimed = [file.stem for file in self.directory.glob(f"*{INFLIGHT}") if file.stem != unquote(file.stem)]
        count = super().recover_orphaned(older_than)
        for run in claimed:
            (self.directory / (run + PAUSED)).rename(self.directory / (unquote(run).replace("/", "_") + PAUSED))
        return count


@animal("paused", "recover.older-than", "recover.older-than-limit", "recover.age-of-last-claim")
class RecoverStealsLiveWork(FilePausedStore):
    """A recovery takes `older_than` and does not look at it. Every worker that starts takes the work of all others."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        check_age(older_than)
        return super().recover_orphaned()


@animal(
    "paused",
    "recover.older-than recover.older-than-limit recover.older-than-paused-again recover.age-of-last-claim",
)
class RecoverTakesTheYoung(FilePausedStore):
    """The age of a claim is compared the wrong way round. Live work is taken, and dead work stays where it is."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        check_age(older_than)
        count = 0
        with self._folder.exclusive() as held:
            for run in [name.removesuffix(INFLIGHT) for name in held.names() if name.endswith(INFLIGHT)]:
                if older_than is None or _age(held, run) <= older_than:
                    count += not held.exists(run + PAUSED)
                    held.unlink(run + INFLIGHT) if held.exists(run + PAUSED) else held.rename(
                        run + INFLIGHT, run + PAUSED
                    )
            held.sync()
        return count


@animal("paused", "recover.older-than-limit")
class RecoverWaitsTooLong(FilePausedStore):
    """A claim is recovered when it is older than asked for, not when it is as old.

    A supervisor that comes round every minute finds its orphans a minute late.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(older_than and check_age(older_than) + 1e-6)


@animal("paused", "recover.older-than", "recover.older-than-limit", "recover.age-of-last-claim")
class RecoverCountsMilliseconds(FilePausedStore):
    """The age is taken to be in milliseconds. A minute is over at once, and live work is taken."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(older_than and check_age(older_than) / 1000)


@animal("paused", "recover.bad-age")
class RecoverTakesAnyAge(FilePausedStore):
    """A negative age counts as none. A supervisor that subtracts its times the wrong way round takes all live work."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return super().recover_orphaned(max(older_than, 0) if isinstance(older_than, (int, float)) else older_than)


class _Stamps(FilePausedStore):
    """Tells the age of a claim in a way of its own."""

    def moment(self, claimed: PausedWorkflow) -> float:
        raise NotImplementedError

    def claim(self, run_id: str) -> PausedWorkflow | None:
        claimed = super().claim(run_id)
        if claimed:
            lease = self.directory / (_stem(run_id) + LEASE)
            lease.write_text(json.dumps({**json.loads(lease.read_text()), "claimed_at": self.moment(claimed)}))
        return claimed


@animal("paused", "recover.older-than", "recover.older-than-limit", "recover.older-than-paused-again")
class AgeOfTheFile(_Stamps):
    """A claim is as old as its file, which was written when the run was paused.

    Who resumes a run that waited for a day loses it at once.
    """

    def moment(self, claimed: PausedWorkflow) -> float:
        return (self.directory / (_stem(claimed.run_id) + INFLIGHT)).stat().st_mtime


@animal("paused", "recover.older-than", "recover.older-than-limit", "recover.older-than-paused-again")
class AgeOfTheRecord(_Stamps):
    """A claim is as old as its record says that the run was paused.

    Under a clock that is behind no claim ever gets old.
    """

    def moment(self, claimed: PausedWorkflow) -> float:
        return claimed.created_at.timestamp()


@animal("paused", "recover.age-of-last-claim")
class AgeOfTheFirstClaim(_Stamps):
    """A worker notes when it first claimed a run, and goes by that.

    A run that it claims for the second time is taken from it at once.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._first: dict[str, float] = {}

    def moment(self, claimed: PausedWorkflow) -> float:
        return self._first.setdefault(claimed.run_id, now().timestamp())
