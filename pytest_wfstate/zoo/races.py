"""Stores whose steps are each correct, until another worker runs between two of them."""

from __future__ import annotations

import builtins
import os

from pytest_wfstate.contracts.effects import SideEffectRecord, check_effect
from pytest_wfstate.contracts.paused import PausedWorkflow, check_age
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, is_orphan, run_stem, stems
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_stores import JsonEffects


@known_bad(
    "paused",
    "complete.not-anothers complete.not-anothers-after-save recover.older-than recover.older-than-limit",
    "recover.age-of-last-claim power.claim power.complete errors.complete",
    "race.save-claim race.save-complete race.save-recover race.claim-claim race.claim-recover race.claim-remove",
    "race.complete-recover race.recover-recover",
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
    "paused", "race.save-recover race.claim-recover race.complete-recover race.recover-recover race.recover-remove"
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


@known_bad("effects", "race.save-mark race.mark-mark race.mark-delete")
class ReadsModifiesWrites(JsonEffects):
    """A mark loads a checkpoint, adds the effect and saves it without a lock. Of two concurrent marks, one is lost."""

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        effect = check_effect(tool_use_id, effect)
        checkpoint = self.load_checkpoint(task_id) or self.blank(task_id)
        self.mark(checkpoint, effect)
        self.put(checkpoint)
