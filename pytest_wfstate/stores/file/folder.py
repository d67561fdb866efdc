"""A store's folder: its lock, and changes that a crash leaves in full or not at all.

`Folder` is one handle's view of its home. `LockedFolder` is the folder while it is locked: every change is a method of
it, so nothing can be changed without the lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Literal, get_args

from pytest_wfstate.stores.file import marker
from pytest_wfstate.stores.file.descriptors import opened_file, opened_file_if_any, opened_folder
from pytest_wfstate.stores.file.lock import LONGEST_WAIT, Kind, check_wait, locked
from pytest_wfstate.stores.file.names import stem
from pytest_wfstate.stores.file.scope import scope
from pytest_wfstate.stores.file.seeds import SeedNames, warn_of
from pytest_wfstate.stores.unsafe_files import hard_link, unsafe_file

Durability = Literal["power", "process"]


class Folder:
    """One handle's view of a folder. Nothing is read or created before the first call that needs it."""

    def __init__(
        self,
        home: str | os.PathLike[str],
        durability: Durability,
        *,
        lock_timeout: float = LONGEST_WAIT,
        mode: int = 0o600,
        contract: str | None = None,
        seeds: SeedNames | None = None,
    ) -> None:
        if durability not in get_args(Durability):
            raise ValueError(
                f"durability is {durability!r}, which is not a level of durability. Use 'power' (a returned call "
                "survives a power cut) or 'process' (it survives the death of the process)."
            )
        self.home = Path(home).absolute()
        self.durability = durability
        self._lock_timeout = check_wait(lock_timeout)
        self.mode = check_mode(mode)
        self._contract = contract
        self._is_checked = contract is None
        self._is_marked = contract is None
        self.seeds = seeds
        self._settled = False
        self._has_warned = False

    def exists(self) -> bool:
        """Whether the folder exists: if not, nothing was ever saved here."""
        return _is_there(self.home)

    def path(self, name: str) -> Path:
        """Return the path of a file in this folder."""
        return self.home / name

    def read(self, name: str) -> bytes | None:
        """Read a whole file; None if it does not exist. No lock is needed: a rename shows the old file or the new."""
        with opened_file_if_any(self.path(name), os.O_RDONLY) as fd:
            return None if fd is None else read_all(fd)

    def check(self) -> None:
        """Before a handle's first read: make sure that the folder is one of its contract."""
        if not self._is_checked:
            self._check()
            self._is_checked = True

    def _check(self) -> bool:
        """Check the marker; return whether there is one."""
        data = self.read(marker.NAME)
        if data is None or self._contract is None or marker.is_torn(data, self._contract):
            return False
        marker.check_marker(data, self.path(marker.NAME), self._contract)
        return True

    def mark(self, held: LockedFolder) -> None:
        """Before a handle's first save: say which contract the folder belongs to, if nobody has said so."""
        if not self._is_marked and self._contract is not None:
            held.rename_new(marker.NAME, marker.marker_of(self._contract))
            self._is_marked = True

    def read_record(self, id_: str, suffix: str) -> tuple[str, bytes] | None:
        """Return the name and the content of the file of an id, which another program may have written."""
        self.check()
        ours = stem(id_) + suffix
        data = self._read_ours(ours, id_)
        if data is None and self.seeds is not None and self.seeds.has_names(id_):
            for theirs in self.seeds.files(self, id_, suffix):
                return theirs.name, theirs.data
            data = self._read_ours(ours, id_)  # it may just have been given our name
        return None if data is None else (ours, data)

    def _read_ours(self, name: str, id_: str) -> bytes | None:
        data = self.read(name)
        if data is None or (self.seeds is not None and self.seeds.other_id(name, data, id_) is not None):
            return None
        return data

    def foreign_ids(self, names: Iterable[str], suffix: str) -> dict[str, str]:
        """Return the id of each file that another program wrote, by name, and warn once about other foreign files."""
        return {} if self.seeds is None else self.seeds.ids(self, names, suffix)

    def warn_of(self, foreign: list[str]) -> None:
        """Warn about files that no id leads to, once for each handle."""
        if foreign and not self._has_warned:
            self._has_warned = True
            warn_of(self.home, foreign)

    @scope
    def exclusive(self, id_: str | None = None) -> Generator[LockedFolder]:
        """Lock the folder to change it, creating it first if it does not exist.

        A file of `id_` that another program wrote is given our name.
        """
        while True:
            self._settle()
            with locked(self.home, Kind.EXCLUSIVE, self._lock_timeout, mode=self.mode) as fd:
                if fd is not None:
                    held = LockedFolder(self, fd)
                    if not self._is_marked:
                        self._is_marked = self._check()
                    if id_ is not None and self.seeds is not None:
                        self.seeds.adopt(held, id_)
                    yield held
                    return
            self._settled = False  # the whole folder was removed since
            self._is_marked = self._contract is None

    @scope
    def shared(self) -> Generator[list[str]]:
        """Lock the folder to read several files at one moment, and yield their names: none if there is no folder."""
        with locked(self.home, Kind.SHARED, self._lock_timeout):
            self.check()
            yield self.names()

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
            placeholder = folder / ".wfstate.retry"
            for change in (os.mkdir, os.rmdir):
                with contextlib.suppress(OSError):
                    change(placeholder)
            raise

    def names(self) -> list[str]:
        """Return the names of all files: none if there is no folder."""
        try:
            return os.listdir(self.home)
        except FileNotFoundError:
            return []

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
        folder.mkdir(folder_mode(self.mode), exist_ok=True)
        try:
            self._sync_folder(folder.parent)
        except BaseException:
            # The name may not last. A retry must create the folder again, not take it for one that was there before.
            # The lock is for a process that has begun to use it.
            with contextlib.suppress(OSError), locked(folder, Kind.EXCLUSIVE, self._lock_timeout):
                folder.rmdir()
            raise

    def _sync_folder(self, folder: Path) -> None:
        if self.durability == "power":
            with opened_folder(folder) as fd:
                if fd is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
                self.sync_names(fd, folder)


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
        """Whether the file exists.

        Raises:
            UnsafeFile: a folder has its name.

        """
        mode = self.mode(name)
        if stat.S_ISDIR(mode):
            raise unsafe_file(self.path(name), mode)
        return mode != 0

    def mode(self, name: str) -> int:
        """Return the type and the permissions of what has this name; 0 if nothing has."""
        return _mode(self.path(name))

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file's content: after a crash at any point it is the old or the new, as a whole."""
        self.folder.mark(self)
        self.rename_new(name, data)
        self.sync()

    def rename_new(self, name: str, data: bytes) -> None:
        """Put a new file, which is durable, in the place of `name`, which is durable with the next `sync`."""
        tmp = self.path(name + ".tmp")
        try:
            self._create(tmp, data)
            self.rename(name + ".tmp", name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(tmp)
            raise

    def _create(self, path: Path, data: bytes) -> None:
        """Write a new file. Under the lock, what has its name is the leftover of a dead writer, or was planted."""
        if self.exists(path.name):
            os.unlink(path)
        with opened_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self.folder.mode) as fd:
            write_all(fd, data)
            self.folder.sync(fd)

    def write(self, name: str, data: bytes, *, durable: bool) -> None:
        """Write a file in place, which a crash may leave in any state.

        Raises:
            UnsafeFile: the file has another name too, so that what is written would show up there.

        """
        with opened_file(self.path(name), os.O_WRONLY | os.O_CREAT, self.folder.mode) as fd:
            found = os.fstat(fd)
            if found.st_nlink > 1:
                raise hard_link(self.path(name), found.st_nlink)
            if found.st_size:
                os.ftruncate(fd, 0)
            write_all(fd, data)
            if durable:
                self.folder.sync(fd)

    def adopt_all(self) -> None:
        """Rename all files that another program wrote to our names."""
        if self.folder.seeds is not None:
            self.folder.seeds.adopt_all(self)

    def rename(self, old: str, new: str) -> None:
        """Move a file, replacing any other of the new name.

        Raises:
            UnsafeFile: a folder has the new name.

        """
        try:
            os.rename(self.path(old), self.path(new))
        except OSError as error:
            raise _folder_at(self.path(new), error) from error

    def unlink(self, *names: str) -> None:
        """Remove files, in this order; missing ones are skipped.

        Raises:
            UnsafeFile: one of them is a folder.

        """
        for name in names:
            try:
                os.unlink(self.path(name))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise _folder_at(self.path(name), error) from error

    def sync(self) -> None:
        """Flush every change to the folder's names to the disk."""
        self.folder.sync_names(self._fd, self.folder.home)


def check_mode(mode: object) -> int:
    """Return the permissions of the files of a store.

    Raises:
        ValueError: they are not, or would lock out the store itself.

    """
    if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o666 or mode & 0o600 != 0o600:
        shown = oct(mode) if isinstance(mode, int) else repr(mode)
        raise ValueError(
            f"mode is {shown}. It must be the permissions of files, which their owner can read and write: 0o600, or "
            "0o640 or 0o660 to share them with a group."
        )
    return mode


def folder_mode(mode: int) -> int:
    """Return the permissions of a folder whose files have `mode`: who can read them can also enter it."""
    return mode | (mode & 0o444) >> 2


def _is_there(path: Path) -> bool:
    return _mode(path) != 0


def _mode(path: Path) -> int:
    """Return the type and the permissions of what has this name; 0 if nothing has."""
    # Not Path.exists: as of Python 3.14 it reports a path that we may not look at as missing.
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _folder_at(path: Path, error: OSError) -> OSError:
    """Return what to raise for a failed change of a name: whether it is a folder depends on the system's errors."""
    mode = _mode(path)
    return unsafe_file(path, mode) if stat.S_ISDIR(mode) else error


def fsync(fd: int) -> None:
    """Flush a file or folder to the disk. On macOS fsync(2) stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def read_all(fd: int) -> bytes:
    """Read a file from where it is to its end."""
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`: one write(2) may write less, for instance when the disk is nearly full."""
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]
