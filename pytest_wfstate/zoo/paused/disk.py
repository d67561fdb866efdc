"""Paused stores that do not survive: a killed process, a power cut, a disk that fails."""

from __future__ import annotations

import builtins
import contextlib
import os
from pathlib import Path
from unittest import mock

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.stores.file import FilePausedStore
from pytest_wfstate.stores.file.paused import INFLIGHT, LEASE, PAUSED, _stem
from pytest_wfstate.zoo.base import animal


@animal("paused", "kill.save", "power.save", "errors.save")
class WritesInPlace(FilePausedStore):
    """A record is written into its file, over the old one. A process that dies meanwhile leaves neither."""

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        with self._folder.exclusive() as held:
            held.write(_stem(paused.run_id) + PAUSED, paused.to_json().encode(), durable=True)
            held.sync()


@animal("paused", "save.refused", "kill.save", "power.save", "errors.save")
class DropsTheOldFirst(FilePausedStore):
    """A save removes the old record, and then writes the new one.

    If that is refused, or its process dies, there is none.
    """

    def save(self, paused: PausedWorkflow) -> None:
        (self.directory / (_stem(paused.run_id) + PAUSED)).unlink(missing_ok=True)
        super().save(paused)


@animal("paused", "kill.save", "power.save", "errors.save")
class ListsLeftovers(FilePausedStore):
    """Everything that has .json in its name is listed, the temporary files of writers that died too.

    Runs appear twice, or cannot be loaded.
    """

    def list(self) -> builtins.list[str]:
        leftovers = [file.name.removesuffix(".json.tmp") for file in self.directory.glob("*.json.tmp")]
        return sorted([*super().list(), *leftovers])


@animal("paused", "kill.save", "power.save", "errors.save")
class LeavesALockFile(FilePausedStore):
    """A save makes a lock file, and removes it when it is done.

    A process that dies meanwhile leaves it there, and nobody can save any more.
    """

    def save(self, paused: PausedWorkflow) -> None:
        lock = self.directory / "lock"
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        try:
            super().save(paused)
        finally:
            lock.unlink()


@animal("paused", "kill.save", "power.save", "errors.save")
class SaveDropsTheClaimFirst(FilePausedStore):
    """A run that pauses again needs no claim any more, so a save drops it, and then writes.

    A process that dies in between leaves neither record nor claim.
    """

    def save(self, paused: PausedWorkflow) -> None:
        (self.directory / (_stem(paused.run_id) + INFLIGHT)).unlink(missing_ok=True)
        super().save(paused)


@animal("paused", "power.save", "power.claim", "power.complete", "power.recover", "power.remove")
class NeverFsyncs(FilePausedStore):
    """Nothing is ever fsynced. After a power cut, what had been acknowledged is empty or not there."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, durability="process")


@animal("paused", "power.save", "errors.save", "power.claim", "power.complete", "power.recover", "power.remove")
class ForgetsTheFolder(FilePausedStore):
    """Files are fsynced, their folder is not.

    After a power cut a file may not have its name yet, or still its old one.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._folder.sync_names = lambda *_: None  # type: ignore[method-assign]


@animal("paused", "power.save", "errors.save")
class FsyncsAfterTheRename(FilePausedStore):
    """The new file is fsynced when it is already in the place of the old one.

    A power cut in between may leave an empty file there.
    """

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        name = _stem(paused.run_id) + PAUSED
        with self._folder.exclusive() as held:
            held.write(name + ".tmp", paused.to_json().encode(), durable=False)
            held.rename(name + ".tmp", name)
            with open(held.path(name), "rb") as file:
                os.fsync(file.fileno())
            held.sync()


@animal("paused", "errors.save", "errors.claim", "errors.complete", "errors.recover", "errors.remove")
class RepeatsAFailedFsync(FilePausedStore):
    """An fsync that fails is repeated.

    The second one says that all is well, for the system has given up the data that it could not write.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._folder.sync = self._sync  # type: ignore[method-assign]

    def _sync(self, fd: int) -> None:
        try:
            os.fsync(fd)
        except OSError:
            os.fsync(fd)


@animal("paused", "kill.claim", "kill.complete", "power.claim", "errors.claim", "power.complete", "errors.complete")
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


@animal("paused", "power.claim", "power.complete", "errors.complete")
class ClaimIsNotFsynced(FilePausedStore):
    """A claim is a rename, and nothing is fsynced.

    After a power cut the run is paused again, while its worker had begun to pay.
    """

    def claim(self, run_id: str) -> PausedWorkflow | None:
        with mock.patch.object(self._folder, "sync_names"):
            return super().claim(run_id)


@animal("paused", "kill.recover", "power.recover", "errors.recover")
class RecoverMovesByHand(FilePausedStore):
    """A recovery reads each marker, deletes it, and saves its run. If it dies in between, the run is gone."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        before = set(self.list())
        count = super().recover_orphaned(older_than)
        for run_id in sorted(set(self.list()) - before):
            paused = self.load(run_id)
            self.remove(run_id)
            if paused:
                self.save(paused)
        return count


@animal("paused", "power.recover")
class RecoverIsNotFsynced(FilePausedStore):
    """A recovery fsyncs nothing.

    After a power cut the run that it had counted is in flight again, and nobody looks for it.
    """

    def recover_orphaned(self, older_than: float | None = None) -> int:
        with mock.patch.object(self._folder, "sync_names"):
            return super().recover_orphaned(older_than)


@animal("paused", "kill.complete", "power.complete", "errors.complete")
class CompletePutsBack(FilePausedStore):
    """A completed run is put back first and then removed like any other.

    If its worker dies in between, a run that was done is paused.
    """

    def complete(self, run_id: str) -> None:
        run = _stem(run_id)
        is_mine = self._claimed.get(run_id, "?").encode() in (self._folder.read(run + LEASE) or b"")
        if is_mine and not (self.directory / (run + PAUSED)).exists():
            (self.directory / (run + INFLIGHT)).rename(self.directory / (run + PAUSED))
            self.remove(run_id)
        super().complete(run_id)


@animal("paused", "power.complete", "errors.complete")
class CompleteIsNotFsynced(FilePausedStore):
    """A complete deletes the marker, and fsyncs nothing.

    After a power cut the marker is back, and a recovery starts the run once more.
    """

    def complete(self, run_id: str) -> None:
        with mock.patch.object(self._folder, "sync_names"):
            super().complete(run_id)


@animal("paused", "kill.remove", "power.remove", "errors.remove")
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


@animal("paused", "power.remove", "errors.remove")
class RemoveFsyncsOnce(FilePausedStore):
    """Claim and record are removed in the right order, with one fsync for both.

    A power cut may keep the claim and lose the record, and a recovery brings the run back.
    """

    def remove(self, run_id: str) -> None:
        run = _stem(run_id)
        with self._folder.exclusive() as held:
            held.unlink(run + INFLIGHT, run + LEASE, run + PAUSED)
            held.sync()


@animal("paused", "errors.save")
class SaveHidesErrors(FilePausedStore):
    """A save that fails is passed over, lest it stop the agent. The disk is full, and the run is never paused."""

    def save(self, paused: PausedWorkflow) -> None:
        with contextlib.suppress(OSError):
            super().save(paused)


@animal("paused", "errors.claim", "errors.complete")
class ClaimHidesErrors(FilePausedStore):
    """A claim that fails says that there is nothing to claim. It may have been made all the same, and nobody has it."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        try:
            return super().claim(run_id)
        except OSError:
            return None


@animal("paused", "errors.recover")
class RecoverHidesErrors(FilePausedStore):
    """A recovery that fails counts none. The runs of a dead worker stay where they are, and nobody learns of it."""

    def recover_orphaned(self, older_than: float | None = None) -> int:
        try:
            return super().recover_orphaned(older_than)
        except OSError:
            return 0


@animal("paused", "errors.complete")
class CompleteHidesErrors(FilePausedStore):
    """A complete that fails is passed over: the work is done, after all. The next recovery starts it once more."""

    def complete(self, run_id: str) -> None:
        with contextlib.suppress(OSError):
            super().complete(run_id)


@animal("paused", "errors.remove")
class RemoveHidesErrors(FilePausedStore):
    """A removal that fails is passed over. The run that was cancelled is still there, and is resumed."""

    def remove(self, run_id: str) -> None:
        with contextlib.suppress(OSError):
            super().remove(run_id)
