"""Paused stores that list, save or remove runs wrongly, or lose them in a crash or a race."""

from __future__ import annotations

import builtins
import os

from pytest_wfstate.contracts.paused import PausedWorkflow, check_age
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, is_orphan, run_stem, stems
from pytest_wfstate.zoo.base import known_bad


@known_bad(
    "paused",
    "save.replaces save.survives-restart list.sorted ids.never-collide corrupt.stays-local claim.others recover.all",
    "complete.others remove.others ids.refused-by-all ids.claims-never-collide corrupt.heals recover.older-than",
    "list.thousand",
    "race.complete-recover token.others race.recover-renew",
)
class ListsDownwards(FilePausedStore):
    """Ids are listed in descending order, to show the newest runs first.

    A client that pages from the last id it saw skips some.
    """

    def list(self) -> builtins.list[str]:
        return super().list()[::-1]


@known_bad(
    "paused",
    "remove.claimed remove.both race.killed-complete token.kept renew.ended",
    "race.remove-renew race.killed-renew",
)
class RemoveForgetsTheClaim(FilePausedStore):
    """Only the paused record is removed. If a worker had claimed the run, the next recovery brings it back."""

    def remove(self, run_id: str) -> None:
        with self._folder.exclusive() as held:
            held.unlink(run_stem(run_id) + PAUSED)
            held.sync()


@known_bad(
    "paused",
    "claim.replaces save.while-claimed recover.paused-again complete.paused-again complete.not-anothers-after-save",
    "recover.older-than-paused-again race.save-claim race.save-complete race.killed-save race.killed-complete",
    "complete.token-paused-again renew.paused-again race.save-renew race.killed-renew",
)
class SavesIntoTheClaim(FilePausedStore):
    """Saving a run that is in flight replaces its claimed record.

    A run that pauses again does not count as paused until its worker dies.
    """

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        marker = self.directory / (run_stem(paused.run_id) + INFLIGHT)
        if marker.exists():
            marker.with_suffix(PAUSED).rename(marker)


@known_bad(
    "paused",
    "kill.save power.save errors.save race.list race.killed-save race.killed-claim race.killed-complete",
    "race.killed-recover race.killed-remove power.fenced-complete kill.takeover power.takeover race.killed-renew",
)
class ListsLeftovers(FilePausedStore):
    """Every file with .json in its name is listed, including the temporary files of writers that died.

    Runs appear twice or cannot be loaded.
    """

    def list(self) -> builtins.list[str]:
        leftovers = [file.name.removesuffix(".json.tmp") for file in self.directory.glob("*.json.tmp")]
        return sorted([*super().list(), *leftovers])


@known_bad(
    "paused",
    "kill.claim kill.complete power.claim errors.claim power.complete errors.complete race.save-claim",
    "race.save-complete race.save-recover race.claim-claim race.claim-complete race.claim-recover race.claim-remove",
    "race.complete-complete race.complete-recover race.complete-remove race.recover-recover race.recover-remove",
    "race.killed-save race.killed-claim race.killed-complete race.killed-recover kill.fenced-complete",
    "power.fenced-complete errors.fenced-complete kill.renew power.renew errors.renew kill.takeover power.takeover",
    "errors.takeover race.save-renew race.claim-renew race.remove-renew race.complete-renew race.recover-renew",
    "race.renew-renew race.killed-renew",
)
class ClaimMovesByHand(FilePausedStore):
    """A claim deletes the paused file and then writes the marker. If the worker dies in between, the run is lost."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused, run = self.load(run_id), run_stem(run_id)
        super().claim(run_id)
        if paused is not None:
            with self._folder.exclusive() as held:
                held.unlink(run + INFLIGHT)
                held.replace(run + INFLIGHT, paused.to_json().encode())
        return paused


@known_bad(
    "paused",
    "kill.remove power.remove errors.remove race.killed-recover token.kept power.takeover",
)
class RemoveDropsTheRecordFirst(FilePausedStore):
    """The record is removed first, and its old claim second.

    After a crash in between, recovery brings the run back as it was before.
    """

    def remove(self, run_id: str) -> None:
        run = run_stem(run_id)
        with self._folder.exclusive() as held:
            held.unlink(run + PAUSED)
            held.sync()
            held.unlink(run + INFLIGHT, run + LEASE)
            held.sync()


@known_bad(
    "paused",
    "power.remove errors.remove token.kept power.takeover",
)
class RemoveFsyncsOnce(FilePausedStore):
    """Claim and record are removed in the right order, but with a single fsync for both.

    A power cut may keep the claim and lose the record, and recovery brings the run back.
    """

    def remove(self, run_id: str) -> None:
        run = run_stem(run_id)
        with self._folder.exclusive() as held:
            held.unlink(run + INFLIGHT, run + LEASE, run + PAUSED)
            held.sync()


@known_bad(
    "paused",
    "complete.not-anothers complete.not-anothers-after-save recover.older-than recover.older-than-limit",
    "recover.age-of-last-claim power.claim power.complete errors.complete race.save-claim race.save-complete",
    "race.save-recover race.claim-claim race.claim-recover race.claim-remove race.complete-recover",
    "race.recover-recover token.kept token.own token.new complete.token complete.token-lost",
    "complete.token-not-handle complete.token-paused-again complete.token-once token.others token.refused",
    "renew.extends renew.lost renew.ended renew.paused-again race.claim-renew",
    "race.recover-renew race.remove-renew",
)
class ChecksThenRenames(FilePausedStore):
    """A claim checks for the file, removes a marker as stale, and renames the file to the marker.

    Both workers see the file. The first renames it; the second removes the first worker's marker, and its own
    rename finds nothing. No file is left, and the run is lost.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused, run = self.load(run_id), run_stem(run_id)
        if paused is None:
            return None
        for stale in (INFLIGHT, LEASE):
            self._folder.path(run + stale).unlink(missing_ok=True)
        try:
            os.rename(self._folder.path(run + PAUSED), self._folder.path(run + INFLIGHT))
        except FileNotFoundError:
            return None
        return paused


@known_bad("paused", "corrupt.stays-local race.list")
class ListReadsEachFile(FilePausedStore):
    """A list reads each run's file to get its id, and fails if a run was claimed after the folder was listed."""

    def list(self) -> builtins.list[str]:
        if not self.directory.exists():
            return []
        files = [self.directory / name for name in os.listdir(self.directory) if name.endswith(PAUSED)]
        return sorted(PausedWorkflow.model_validate_json(file.read_bytes()).run_id for file in files)


@known_bad(
    "paused",
    "race.save-recover race.claim-recover race.complete-recover race.recover-recover race.recover-remove",
    "power.takeover errors.takeover race.recover-renew",
)
class ReadsLeasesBeforeTheLock(FilePausedStore):
    """Recovery finds the orphans first, and only then takes the lock to rename them.

    A run that was completed in the meantime is missing, and one that was claimed again is stolen from its worker.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        if not self._folder.exists():
            return 0
        seen = LockedFolder(self._folder, -1)
        orphans = [run for run in stems(seen.names(), INFLIGHT) if is_orphan(seen, run, age)]
        again = [run for run in orphans if seen.exists(run + PAUSED)]
        with self._folder.exclusive() as held:
            held.sync()
            for run in set(orphans) - set(again):
                held.rename(run + INFLIGHT, run + PAUSED)
            held.unlink(*(run + INFLIGHT for run in again), *(run + LEASE for run in orphans))
            held.sync()
        return len(orphans) - len(again)
