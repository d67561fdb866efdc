"""The file of a SQLite database: private, in folders that survive a power cut, and still the one that was opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL

from pytest_wfstate.errors import LostConnection

DEFAULT_MODE = 0o600
FileId = tuple[int, int]
"""The device and the inode of a file."""


class SqliteFile:
    """Where a database is. `mode` are the permissions of a file that is created here, and of SQLite's files beside it.

    A folder that is created here may be listed by those who may read the file.
    """

    def __init__(self, url: URL, mode: int = DEFAULT_MODE) -> None:
        self.path = _path(str(url.database))
        self._name = str(self.path)
        self._mode = mode
        self._opened: FileId | None = None

    def make(self) -> None:
        """Create the file and the folders above it, and flush their names to the disk.

        SQLite flushes the name of the file, and nothing above it. If the file exists, its folders are durable: whoever
        created it has called this. If not, another process may have created folders and died, so all are fsynced.
        """
        if self.path.exists():
            return
        self._make_folder(self.path.parent)
        for folder in self.path.parents:
            if not _sync(folder):
                break
        self._make_file()

    def check(self) -> None:
        """Check that the file is still the one that this handle has used so far, if it has used one.

        Raises:
            LostConnection: it is not.

        """
        if self._opened is not None and self._found() != self._opened:
            raise self._lost("was replaced by another file")

    def opened(self, before: FileId | None) -> FileId:
        """Return which file a connection has open. `before` is what this returned for it before, if it did.

        Raises:
            LostConnection: it is not the one that is there, or not the one that this handle has used so far.

        """
        found = before or self._found()
        self._opened = self._opened or self._found()
        if found != self._opened:
            raise self._lost("was replaced by another file")
        return found

    def forget(self) -> None:
        """Accept whatever file is there next."""
        self._opened = None

    def _found(self) -> FileId:
        try:
            status = os.stat(self._name)
        except FileNotFoundError:
            raise self._lost("was removed") from None
        return status.st_dev, status.st_ino

    def _lost(self, what: str) -> LostConnection:
        return LostConnection(
            f"the database file {self.path} {what} while a store had it open. Nothing was changed: it would have been "
            "changed in the old file, which has no name any more. Put the file back, or close the store and open it "
            "again to use what is there now."
        )

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            return  # another process has just created it, or it is not a folder, which SQLite reports
        os.chmod(folder, self._mode | (self._mode & 0o444) >> 2)  # mkdir(2) applies the umask

    def _make_file(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self.path, flags, stat.S_IRUSR | stat.S_IWUSR)
        except OSError:
            return  # it exists by now, or SQLite says why it cannot
        try:
            os.fchmod(descriptor, self._mode)  # before anything is in it; open(2) applies the umask
        finally:
            os.close(descriptor)


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
