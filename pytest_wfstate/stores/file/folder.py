"""A store's folder: its lock, and changes that a crash leaves in full or not at all.

`Folder` is one handle's view of its home. `LockedFolder` is the folder while it is locked: every change is a method of
it, so nothing can be changed without the lock.
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
    """One handle's view of a folder. Nothing is read or created before the first call that needs it."""

    def __init__(self, home: str | os.PathLike[str], durability: Durability) -> None:
        if durability not in get_args(Durability):
            raise ValueError(
                f"durability is {durability!r}, which is not a level of durability. Use 'power' (a returned call "
                "survives a power cut) or 'process' (it survives the death of the process)."
            )
        self.home = Path(home).absolute()
        self.durability = durability
        self._settled = False

    def exists(self) -> bool:
        """Whether the folder exists: if not, nothing was ever saved here."""
        return _is_there(self.home)

    def path(self, name: str) -> Path:
        """Return the path of a file in this folder."""
        return self.home / name

    def read(self, name: str) -> bytes | None:
        """Read a whole file; None if it does not exist. No lock is needed: a rename shows the old file or the new."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[LockedFolder]:
        """Lock the folder to change it, creating it first if it does not exist."""
        self._settle()
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(locked(self.home, Kind.EXCLUSIVE))
            except FileNotFoundError:  # the whole folder was removed since
                self._settled = False
                self._settle()
                fd = stack.enter_context(locked(self.home, Kind.EXCLUSIVE))
            yield LockedFolder(self, fd)

    @contextlib.contextmanager
    def shared(self) -> Iterator[list[str]]:
        """Lock the folder to read several files at one moment, and yield their names: none if there is no folder."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.home, Kind.SHARED))
                names = os.listdir(self.home)
            except FileNotFoundError:
                names = []
            yield names

    def sync(self, fd: int) -> None:
        """Flush the file `fd` to the disk, if this store must survive a power cut."""
        if self.durability == "power":
            fsync(fd)

    def sync_names(self, fd: int, folder: Path) -> None:
        """Flush every change to the names in `folder`, which `fd` is a descriptor of, to the disk."""
        try:
            self.sync(fd)
        except OSError:
            # The system reports a failed write once, then considers it done (fsync(2)). Changing a name makes the next
            # fsync, by whoever retries, write the folder again.
            placeholder = folder / ".wfstate.tmp"
            for change in (os.mkdir, os.rmdir):
                with contextlib.suppress(OSError):
                    change(placeholder)
            raise

    def _settle(self) -> None:
        """Before a handle's first change: make sure that the folder exists, under a name that is durable."""
        if not self._settled:
            self._make(self.home)
            self._settled = True

    def _make(self, folder: Path) -> None:
        # A name is durable once its parent was fsynced. Whoever made an existing folder may have died before that, so
        # its parent is fsynced either way, and before anything is put below it: the ancestors above are then safe.
        if folder.is_dir():
            # A parent that we may not open was not written by us: another user created our folder in it.
            with contextlib.suppress(PermissionError):
                self._sync_folder(folder.parent)
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        try:
            self._sync_folder(folder.parent)
        except BaseException:
            # The name may not last. A retry must create the folder again, not take it for one that was there before.
            # The lock is for a process that has begun to use it.
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
    """A folder that is locked, and the changes to it. None is durable before `sync`."""

    def __init__(self, folder: Folder, fd: int) -> None:
        self.folder = folder
        self._fd = fd

    def path(self, name: str) -> Path:
        """Return the path of a file in this folder."""
        return self.folder.path(name)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return os.listdir(self.folder.home)

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        return _is_there(self.path(name))

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file's content: after a crash at any point it is the old or the new, as a whole."""
        # Under the lock a file of this name is the leftover of a writer that died: it is overwritten.
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
        """Move a file, replacing any other of the new name."""
        os.rename(self.path(old), self.path(new))

    def unlink(self, *names: str) -> None:
        """Remove files, in this order; missing ones are skipped."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def sync(self) -> None:
        """Flush every change to the folder's names to the disk."""
        self.folder.sync_names(self._fd, self.folder.home)


def _is_there(path: Path) -> bool:
    # Not Path.exists: as of Python 3.14 it reports a path that we may not look at as missing.
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def fsync(fd: int) -> None:
    """Flush a file or folder to the disk. On macOS fsync(2) stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`: one write(2) may write less, for instance when the disk is nearly full."""
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]
