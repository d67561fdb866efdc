"""Paused stores that lose runs: what they list, save and remove, and where a crash finds them."""

from __future__ import annotations

import builtins

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, _stem
from pytest_wfstate.zoo.base import animal


@animal(
    "paused",
    "save.replaces save.survives-restart list.sorted ids.never-collide corrupt.stays-local claim.others recover.all",
    "complete.others remove.others ids.refused-by-all ids.claims-never-collide corrupt.heals recover.older-than",
    "race.complete-recover",
)
class ListsDownwards(FilePausedStore):
    """Ids are listed with the largest first, since the newest runs are the most interesting.

    Who pages through them from the last id it saw skips some.
    """

    def list(self) -> builtins.list[str]:
        return super().list()[::-1]


@animal(
    "paused",
    "remove.claimed remove.both race.killed-complete race.killed-remove",
)
class RemoveForgetsTheClaim(FilePausedStore):
    """Only the paused record is removed. If a worker had claimed the run, the next recovery brings it back."""

    def remove(self, run_id: str) -> None:
        with self._folder.exclusive() as held:
            held.unlink(_stem(run_id) + PAUSED)
            held.sync()


@animal(
    "paused",
    "claim.replaces save.while-claimed recover.paused-again complete.paused-again complete.not-anothers-after-save",
    "recover.older-than-paused-again race.save-claim race.save-complete race.killed-save race.killed-complete",
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
    "kill.save power.save errors.save race.list race.killed-save race.killed-claim race.killed-complete",
    "race.killed-recover race.killed-remove",
)
class ListsLeftovers(FilePausedStore):
    """Everything that has .json in its name is listed, the temporary files of writers that died too.

    Runs appear twice, or cannot be loaded.
    """

    def list(self) -> builtins.list[str]:
        leftovers = [file.name.removesuffix(".json.tmp") for file in self.directory.glob("*.json.tmp")]
        return sorted([*super().list(), *leftovers])


@animal(
    "paused",
    "kill.claim kill.complete power.claim errors.claim power.complete errors.complete race.save-claim",
    "race.save-complete race.save-recover race.claim-claim race.claim-complete race.claim-recover race.claim-remove",
    "race.complete-complete race.complete-recover race.complete-remove race.recover-recover race.recover-remove",
    "race.killed-save race.killed-claim race.killed-complete race.killed-recover",
)
class ClaimMovesByHand(FilePausedStore):
    """A claim deletes the paused file, and then writes the marker.

    A worker that dies in between takes the run along.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        paused, run = self.load(run_id), _stem(run_id)
        super().claim(run_id)
        if paused is not None:
            with self._folder.exclusive() as held:
                held.unlink(run + INFLIGHT)
                held.replace(run + INFLIGHT, paused.to_json().encode())
        return paused


@animal(
    "paused",
    "kill.remove power.remove errors.remove race.killed-recover",
)
class RemoveDropsTheRecordFirst(FilePausedStore):
    """The record is removed first and its old claim second.

    If the process dies in between, a recovery brings the run back, as it was before.
    """

    def remove(self, run_id: str) -> None:
        run = _stem(run_id)
        with self._folder.exclusive() as held:
            held.unlink(run + PAUSED)
            held.sync()
            held.unlink(run + INFLIGHT, run + LEASE)
            held.sync()


@animal("paused", "power.remove errors.remove")
class RemoveFsyncsOnce(FilePausedStore):
    """Claim and record are removed in the right order, with one fsync for both.

    A power cut may keep the claim and lose the record, and a recovery brings the run back.
    """

    def remove(self, run_id: str) -> None:
        run = _stem(run_id)
        with self._folder.exclusive() as held:
            held.unlink(run + INFLIGHT, run + LEASE, run + PAUSED)
            held.sync()
