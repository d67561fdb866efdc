"""The file of a SQLite database: private, in folders that survive a power cut, and still the one that was opened.

Whoever removes or replaces a database, or its log, leaves the connections to it as they are: they go on in files that
have no name any more, and what they acknowledge is lost. So each connection is noted with the file that it opened, and
a change is acknowledged only if the files are still there afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
import weakref
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Engine, event

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.unsafe_files import hard_link, unsafe_file

DEFAULT_MODE = 0o600
FileId = tuple[int, int]
"""The device and the inode of a file."""
Info = MutableMapping[Any, Any]
"""What is noted about a connection, as long as it is open."""

_FILE = "wfstate file"  # in the info of a connection: the file that it has open
_LOG = "wfstate log"  # its write-ahead log, an _OpenLog
_NAMES = "wfstate names"  # the folder of both as it was when they were last looked for, and found
_NONE: FileId = (-1, -1)
_BESIDE = ("-journal", "-wal", "-shm")
_CLOCK_REALTIME_COARSE = 5  # of Linux, in its clock_gettime(2)


class SqliteFile:
    """Where a database is. `mode` are the permissions of a file that is created here, and of SQLite's files beside it.

    A folder that is created here may be listed by those who may read the file.
    """

    def __init__(self, url: URL, mode: int = DEFAULT_MODE) -> None:
        self.path = _path(str(url.database))
        self._name = str(self.path)
        self._folder = str(self.path.parent)
        self._mode = mode
        self._opened: FileId | None = None
        self._before: FileId | None = None  # what was there before the first connection

    def make(self) -> None:
        """Create the file and the folders above it, and flush their names to the disk.

        SQLite flushes the name of the file, and nothing above it. If the file exists, its folders are durable: whoever
        created it has called this. If not, another process may have created folders and died, so all are fsynced.

        Raises:
            UnsafeFile: what is there is not a regular file, or has another name too.

        """
        if _is_safe(self._name, _status(self._name, follow_symlinks=True)):
            return
        real = Path(os.path.realpath(self.path))  # a link may lead to a file that does not exist yet
        self._make_folder(real.parent)
        for folder in real.parents:
            if not _sync(folder):
                break
        self._make_file(real)

    def check_beside(self) -> None:
        """Check the files beside the database, before SQLite opens them.

        Raises:
            UnsafeFile: one is not a regular file, or has another name too.

        """
        real = os.path.realpath(self._name)
        for suffix in _BESIDE:
            _is_safe(real + suffix, _status(real + suffix, follow_symlinks=False))

    def check_before(self) -> None:
        """Check, before a connection is made, that the file is still the one that was used so far, if one was.

        Raises:
            LostConnection: it is not.

        """
        if self._opened is None:
            self._before = _id(self._name)
        else:
            self.check_read()

    def check_read(self) -> None:
        """Check, after something was read, that the file is still the one that this handle has used so far.

        Raises:
            LostConnection: it is not.

        """
        if self._found() != self._opened:
            raise self._lost("was replaced by another file")

    def has(self, connection: Info) -> bool:
        """Whether a connection has the file open that is there now. One that nobody has noted may have any.

        Raises:
            LostConnection: there is no file.

        """
        return connection.get(_FILE) == self._found()

    def use(self, connection: Info) -> None:
        """Begin to use a connection.

        Raises:
            LostConnection: its file is not the one that this handle has used so far, or that was there before.

        """
        found: FileId = connection.get(_FILE, _NONE)
        if found != (self._opened or self._before or found):
            raise self._lost("was replaced by another file")
        self._opened = found

    def check_change(self, connection: Info) -> None:
        """Check, after a change, that it was made in files that are still there.

        While their folder has not changed, nor have the names in it: so they are looked for again only if it has.

        Raises:
            LostConnection: it was not, or they were replaced since.

        """
        folder = _unchanging(self._folder)
        if folder is not None and folder == connection.get(_NAMES):
            return
        if _id(self._name) != connection[_FILE]:
            raise self._stale(f"the database file {self.path}")
        log = connection.get(_LOG)
        if log is None:
            return
        if not log.is_there():
            raise self._stale(f"the write-ahead log {log.path}")
        connection[_NAMES] = None if os.path.islink(self._name) else folder

    def note_log(self, connection: Info) -> None:
        """Note which log a connection has open, once it has opened one."""
        if _LOG not in connection:
            with contextlib.suppress(FileNotFoundError):
                connection[_LOG] = _OpenLog(f"{os.path.realpath(self._name)}-wal")

    def forget(self) -> None:
        """Accept whatever file is there next."""
        self._opened = None

    def _found(self) -> FileId:
        found = _id(self._name)
        if found is None:
            raise self._lost("was removed")
        return found

    def _lost(self, what: str) -> LostConnection:
        return LostConnection(
            f"the database file {self.path} {what} while a store had it open. Nothing was changed: it would have been "
            "changed in the old file, which has no name any more. Put the file back, or close the store and open it "
            "again to use what is there now."
        )

    def _stale(self, what: str) -> LostConnection:
        lost = LostConnection(
            f"{what} was removed or replaced while a store had it open. The change that was just made is not in the "
            "database that is there now, unless its old files are put back. Do so, or close the store, open it again, "
            "and check what is there before you retry."
        )
        lost.__cause__ = OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self.path))
        return lost

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            return  # another process has just created it, or it is not a folder, which SQLite reports
        os.chmod(folder, self._mode | (self._mode & 0o444) >> 2)  # mkdir(2) applies the umask

    def _make_file(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
        except OSError:
            return  # it exists by now, or SQLite says why it cannot
        try:
            os.fchmod(descriptor, self._mode)  # before anything is in it; open(2) applies the umask
        finally:
            os.close(descriptor)


class _OpenLog:
    """A write-ahead log that a connection has open.

    On Linux, its path is that of a descriptor of ours, which is not asked for its times: since Linux 6.13, whoever asks
    makes the next fsync flush them, too, which makes a commit a fifth slower. Opened with O_PATH, the descriptor can be
    closed without releasing SQLite's locks.
    """

    __slots__ = ("__weakref__", "_link", "_opened", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._link: str | None = None
        self._opened: FileId | None = None
        if hasattr(os, "O_PATH"):
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            weakref.finalize(self, os.close, descriptor)
            self._link = f"/proc/self/fd/{descriptor}"
        if not self.is_there():  # there is no /proc, or it shows other paths
            self._link = None
            self._opened = _id(path)

    def is_there(self) -> bool:
        """Whether its path still leads to it."""
        if self._link is None:
            return _id(self.path) == self._opened
        try:
            return os.readlink(self._link) == self.path
        except OSError:
            return False


def watch(engine: Engine) -> None:
    """Have every connection that an engine opens from now on noted with its file."""
    if not event.contains(engine, "connect", _note_file):
        event.listen(engine, "connect", _note_file)


def _note_file(driver: Any, record: Any) -> None:
    cursor = driver.cursor()
    try:
        cursor.row_factory = None
        path = cursor.execute("PRAGMA database_list").fetchone()[2]
    finally:
        cursor.close()
    record.info[_FILE] = _id(path) or _NONE


def _is_safe(path: str, found: os.stat_result | None) -> bool:
    """Whether there is a file that SQLite may open.

    Raises:
        UnsafeFile: there is something else. SQLite would wait for the other end of a pipe.

    """
    if found is None:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise unsafe_file(path, found.st_mode)
    if found.st_nlink > 1:
        raise hard_link(path, found.st_nlink)
    return True


def _id(path: str) -> FileId | None:
    """Return which file is at a path, if there is one."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _unchanging(folder: str) -> tuple[int, ...] | None:
    """Return which folder is at a path, and when names in it changed last: None if it may change now, unnoticed.

    A change gets the time of the kernel's last tick or a later one, so the next change gets another time than one that
    was made before that tick.
    """
    if sys.platform != "linux":
        return None
    tick = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns) if found.st_ctime_ns < tick else None


def _status(path: str, *, follow_symlinks: bool) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_mode(mode: object) -> int:
    """Return `mode` if a file can have these permissions and its owner can use it.

    Raises:
        ValueError: it is not such a mode.

    """
    if isinstance(mode, int) and not isinstance(mode, bool) and not mode & ~0o666 and mode & 0o600 == 0o600:
        return mode
    raise ValueError(
        f"{oct(mode) if isinstance(mode, int) else repr(mode)} is not a valid mode: the permissions of a file, whose "
        "owner has to be able to read and write it. Use one such as 0o600, which is the default, or 0o660."
    )


def _path(database: str) -> Path:
    """Return the path in a URL, which may contain a URI of SQLite's own (sqlite.org/uri.html)."""
    return Path(unquote(urlsplit(database).path) if database.startswith("file:") else database).absolute()


def _sync(folder: Path) -> bool:
    """Flush the names in a folder to the disk. False if it cannot be opened: then we cannot have created one in it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
