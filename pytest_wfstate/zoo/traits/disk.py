"""Stores that a crash, a power cut or a full disk gets the better of."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pytest_wfstate.stores.file.folder import Folder, LockedFolder
from pytest_wfstate.zoo.base import trait
from pytest_wfstate.zoo.json_stores import JsonFiles


@trait(
    effects="kill.save kill.mark kill.delete power.save errors.save power.mark errors.mark power.delete errors.delete "
    "race.load",
    paused="kill.save kill.claim kill.complete kill.recover power.save errors.save power.claim errors.claim "
    "power.complete errors.complete power.recover errors.recover race.load race.killed-save race.killed-claim "
    "race.killed-complete race.killed-recover race.killed-remove",
    resume="kill.save kill.delete power.save errors.save power.delete errors.delete race.load",
    runs="kill.create kill.update kill.delete kill.upsert power.create errors.create power.update errors.update "
    "power.delete power.upsert errors.upsert race.get-run race.get-step race.list-steps",
    snapshots="kill.save power.save errors.save race.save-fork race.load race.latest race.list",
)
class OverwritesInPlace(JsonFiles):
    """A file is opened, emptied and written. Who dies in between leaves half of it, and the old one is gone."""

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.write(name, data, durable=True)
        held.sync()


@trait(paused="power.save power.claim power.complete power.recover power.remove")
class NeverSynced(JsonFiles):
    """Files are written and renamed, and nothing is fsynced.

    A power cut takes what was acknowledged, or leaves files of zeros.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = Folder(home, "process")


@trait(
    effects="power.save errors.save power.mark errors.mark power.delete errors.delete",
    runs="power.create errors.create power.update errors.update power.delete power.upsert errors.upsert",
    snapshots="power.save errors.save power.fork errors.fork",
)
class FolderNeverSynced(JsonFiles):
    """A file is fsynced, its folder is not. After a power cut the new name is not there, and the old one is."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self.folder = _NamesNeverSynced(home, "power")


class _NamesNeverSynced(Folder):
    def sync_names(self, fd: int, folder: Path) -> None:
        pass


@trait(resume="power.save errors.save power.delete errors.delete")
class RenamedThenSynced(JsonFiles):
    """A file is renamed first, and fsynced in its new place.

    A power cut in between leaves the new name with nothing in it.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        held.write(name + ".tmp", data, durable=False)
        held.rename(name + ".tmp", name)
        fd = os.open(held.path(name), os.O_RDONLY)
        try:
            self.folder.sync(fd)
        finally:
            os.close(fd)
        held.sync()


@trait(
    effects="errors.save errors.mark errors.delete",
    paused="errors.save errors.claim errors.complete errors.recover errors.remove",
    runs="errors.create errors.update errors.delete errors.upsert",
)
class SwallowsErrors(JsonFiles):
    """An error of the disk is passed over: state is not worth a failed run.

    On a full disk everything is acknowledged, and nothing is kept.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            super().write(held, name, data)

    def unlink(self, held: LockedFolder, name: str) -> None:
        with contextlib.suppress(OSError):
            super().unlink(held, name)


@trait(effects="errors.save errors.mark errors.delete")
class ShortWriteWillDo(JsonFiles):
    """What `write` returns is not looked at.

    A nearly full disk takes half of the file, and the other half is not missed.
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


@trait(paused="errors.save errors.claim errors.complete errors.recover errors.remove")
class RepeatsAFailedFsync(JsonFiles):
    """An fsync that fails is repeated.

    The second one says that all is well, for the system has given up the data that it could not write.
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


@trait(resume="kill.save kill.delete power.save errors.save power.delete errors.delete")
class LeavesALockFile(JsonFiles):
    """Who writes makes a lock file, and removes it when it is done.

    A process that dies meanwhile leaves it there, and nobody can write any more.
    """

    def write(self, held: LockedFolder, name: str, data: bytes) -> None:
        lock = held.path("lock")
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        try:
            super().write(held, name, data)
        finally:
            lock.unlink()
