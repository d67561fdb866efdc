"""A store's folder: the lock on it, and changes that are either there in full after a crash or not at all.

`Folder` is what a handle knows of its home. `LockedFolder` is the folder while it is locked: all that changes it is there,
so that nothing can be changed without the lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from pytest_wfstate.stores.file.lock import Kind, locked

Durability = Literal["power", "process"]


class Folder:
    """One handle's view of a folder. Nothing is read or made before the first call that needs it."""

    def __init__(self, home: str | os.PathLike[str], durability: Durability) -> None:
        if durability not in get_args(Durability):
            raise ValueError(
                f"durability is {durability!r}. It is 'power' (a returned call survives a power cut) "
                "or 'process' (it survives the death of the process)."
            )
        self.home = Path(home).absolute()
        self.durability = durability
        self._settled = False

    def exists(self) -> bool:
        """Tell whether anything was ever saved here."""
        return _is_there(self.home)

    def path(self, name: str) -> Path:
        """Give the place of a file in this folder."""
        return self.home / name

    def read(self, name: str) -> bytes | None:
        """Read a whole file, or None if there is none. It needs no lock: a rename shows the old file or the new."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[LockedFolder]:
        """Lock the folder to change it, making it first if need be."""
        self._settle()
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(locked(self.home, Kind.EXCLUSIVE))
            except FileNotFoundError:  # somebody removed the whole folder since
                self._settled = False
                self._settle()
                fd = stack.enter_context(locked(self.home, Kind.EXCLUSIVE))
            yield LockedFolder(self, fd)

    @contextlib.contextmanager
    def shared(self) -> Iterator[list[str]]:
        """Lock the folder to look at several files at once, and list their names: none if there is no folder."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.home, Kind.SHARED))
                names = os.listdir(self.home)
            except FileNotFoundError:
                names = []
            yield names

    def sync(self, fd: int) -> None:
        """Wait until the file `fd` is on the disk, if this store is to survive a power cut."""
        if self.durability == "power":
            fsync(fd)

    def sync_names(self, fd: int, folder: Path) -> None:
        """Wait until every change to the names in `folder`, which `fd` is a descriptor of, is on the disk."""
        try:
            self.sync(fd)
        except OSError:
            # The system tells of a failed write once, then takes it for done (fsync(2)). A change of names makes the
            # next fsync, of whoever tries again, write the folder anew.
            nothing = folder / ".wfstate.tmp"
            for change in (os.mkdir, os.rmdir):
                with contextlib.suppress(OSError):
                    change(nothing)
            raise

    def _settle(self) -> None:
        """Before a handle's first change: make sure that the folder is there, by a name that will stay."""
        if not self._settled:
            self._make(self.home)
            self._settled = True

    def _make(self, folder: Path) -> None:
        # A name is durable once its parent was fsynced. Who made an existing folder may have died before that, so its
        # parent is fsynced either way, and always before anything is put below it: the ancestors above are then safe.
        if folder.is_dir():
            # A parent that we may not open is one that somebody else put our folder into.
            with contextlib.suppress(PermissionError):
                self._sync_folder(folder.parent)
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        try:
            self._sync_folder(folder.parent)
        except BaseException:
            # Its name may not stay. Who tries again is to make it again, not to take it for somebody else's. The lock
            # is for a process that has begun to use it.
            with contextlib.suppress(OSError), locked(folder, Kind.EXCLUSIVE):
                folder.rmdir()
            raise

    def _sync_folder(self, folder: Path) -> None:
        if self.durability == "power":
            fd = os.open(folder, os.O_RDONLY)
            try:
                self.sync_names(fd, folder)
            finally:
                os.close(fd)


class LockedFolder:
    """A folder that is locked: what may be done to it, and nothing is acknowledged before `sync`."""

    def __init__(self, folder: Folder, fd: int) -> None:
        self.folder = folder
        self._fd = fd

    def path(self, name: str) -> Path:
        """Give the place of a file in this folder."""
        return self.folder.path(name)

    def names(self) -> list[str]:
        """List the files."""
        return os.listdir(self.folder.home)

    def exists(self, name: str) -> bool:
        """Tell whether the file is there."""
        return _is_there(self.path(name))

    def replace(self, name: str, data: bytes) -> None:
        """Put `data` in the file's place: after a crash at any point it holds the old content or the new, whole."""
        # Under the lock a file of this name is the leftover of a writer that died: it is written over.
        tmp = self.path(name + ".tmp")
        try:
            self.write(tmp.name, data, durable=True)
            os.rename(tmp, self.path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(tmp)
            raise
        self.sync()

    def write(self, name: str, data: bytes, *, durable: bool) -> None:
        """Write a file in place, which a crash may leave in any state."""
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            write_all(fd, data)
            if durable:
                self.folder.sync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Move a file, over another if need be."""
        os.rename(self.path(old), self.path(new))

    def unlink(self, *names: str) -> None:
        """Remove files, in this order; those that are not there are passed over."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def sync(self) -> None:
        """Wait until every change to the folder's names is on the disk."""
        self.folder.sync_names(self._fd, self.folder.home)


def _is_there(path: Path) -> bool:
    # Not Path.exists: as of Python 3.14 it takes a path that we may not look at for one that is not there.
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def fsync(fd: int) -> None:
    """Wait until a file or folder is on the disk. On macOS fsync(2) stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`: one write(2) may take less, for instance when the disk is nearly full."""
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]
