"""Stores that do not survive a crash, a power cut or a full disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pytest_wfstate.stores.file.folder import Folder, LockedFolder
from pytest_wfstate.zoo.base import shared_bug
from pytest_wfstate.zoo.correct_stores import JsonFiles


@shared_bug(
    effects="kill.save kill.mark kill.delete power.save errors.save power.mark errors.mark power.delete errors.delete "
    "race.load",
    paused="kill.save kill.claim kill.complete kill.recover power.save errors.save power.claim errors.claim "
    "power.complete errors.complete power.recover errors.recover race.load race.killed-save "
    "race.killed-claim race.killed-complete race.killed-recover race.killed-remove kill.fenced-complete "
    "power.fenced-complete errors.fenced-complete kill.renew power.renew errors.renew kill.takeover "
    "power.takeover errors.takeover race.killed-renew",
    resume="kill.save kill.delete power.save errors.save power.delete errors.delete race.load",
    runs="kill.create kill.update kill.delete kill.upsert power.create errors.create power.update errors.update "
    "power.delete power.upsert errors.upsert race.get-run race.get-step race.list-steps",
    snapshots="kill.save power.save errors.save race.save-fork race.load race.latest race.list",
    history="kill.append kill.pop kill.clear power.append errors.append power.pop errors.pop "
    "race.read power.clear errors.clear",
    queue="kill.put kill.take kill.done kill.retry kill.recover kill.takeover power.put power.take "
    "power.done power.retry power.recover power.takeover errors.put errors.take errors.done "
    "errors.retry errors.recover errors.takeover race.list race.killed-put race.killed-take "
    "race.killed-done race.killed-recover",
    lock="kill.acquire kill.renew kill.release power.acquire power.renew power.release "
    "errors.acquire errors.renew errors.release race.held",
)
class OverwritesInPlace(JsonFiles):
    """A file is truncated and then written. A crash in between leaves half of the new file and none of the old."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@shared_bug(
    paused="power.save power.claim power.complete power.recover power.remove power.renew power.fenced-complete "
    "power.takeover"
)
class NeverSynced(JsonFiles):
    """Files are written and renamed, but never fsynced.

    A power cut loses acknowledged records, or leaves files full of zeros.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = Folder(home, "process")


@shared_bug(
    effects="power.save power.mark power.delete",
    runs="power.create power.update power.delete power.upsert",
    snapshots="power.save power.fork",
    history="power.append power.pop power.clear",
    queue="power.put power.take power.done power.retry power.recover power.takeover",
    lock="power.acquire power.renew power.release",
)
class FolderNeverSynced(JsonFiles):
    """A file is fsynced, but its folder is not. A power cut loses the rename, and the old file is back."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = _NamesNeverSynced(home, "power")


class _NamesNeverSynced(Folder):
    def sync_names(self, fd: int, folder: Path) -> None:
        pass


@shared_bug(resume="power.save errors.save power.delete errors.delete")
class RenamedThenSynced(JsonFiles):
    """A file is renamed first and fsynced second. A power cut in between leaves an empty file under the new name."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.write(name + ".tmp", data, durable=False)
        held.rename(name + ".tmp", name)
        fd = os.open(held.path(name), os.O_RDONLY)
        try:
            self.folder.sync(fd)
        finally:
            os.close(fd)
        held.sync()


@shared_bug(
    effects="errors.save errors.mark errors.delete",
    paused="errors.save errors.claim errors.complete errors.recover errors.remove errors.fenced-complete "
    "errors.renew errors.takeover",
    runs="errors.create errors.update errors.delete errors.upsert",
    history="errors.append errors.pop errors.clear",
    queue="errors.put errors.take errors.done errors.retry errors.recover errors.takeover",
    lock="errors.acquire errors.renew errors.release",
)
class SwallowsErrors(JsonFiles):
    """Disk errors are ignored, because saving state should never fail a run.

    On a full disk everything is acknowledged and nothing is stored.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            super().write(held, name, data)

    def unlink(self, held: LockedFolder, name: str) -> None:
        with contextlib.suppress(OSError):
            super().unlink(held, name)


@shared_bug(effects="errors.save errors.mark errors.delete")
class ShortWriteWillDo(JsonFiles):
    """The return value of `write` is ignored.

    A nearly full disk takes half of the file, and the missing half goes unnoticed.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        fd = os.open(held.path(name + ".tmp"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, data)
            self.folder.sync(fd)
        finally:
            os.close(fd)
        held.rename(name + ".tmp", name)
        held.sync()


@shared_bug(
    paused="errors.save errors.claim errors.complete errors.recover errors.remove errors.takeover "
    "errors.fenced-complete errors.renew"
)
class RepeatsAFailedFsync(JsonFiles):
    """A failed fsync is repeated.

    The second one succeeds, because the kernel has dropped the data that it could not write.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = _Stubborn(home, "power")


class _Stubborn(Folder):
    def sync(self, fd: int) -> None:
        try:
            super().sync(fd)
        except OSError:
            super().sync(fd)


@shared_bug(resume="kill.save kill.delete power.save errors.save power.delete errors.delete")
class LeavesALockFile(JsonFiles):
    """A writer creates a lock file and removes it when it is done.

    A process that dies in between leaves it behind, and all later writes fail.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        lock = held.path("lock")
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        try:
            super().write(held, name, data)
        finally:
            lock.unlink()
