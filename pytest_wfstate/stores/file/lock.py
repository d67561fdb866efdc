"""The lock on a folder: held by one process at a time, released when that process dies.

It is `flock` on the folder itself, so it leaves no file behind and a killed worker blocks no other. Every use opens
the folder again: two open file descriptions exclude each other even in one process, so threads need no other lock.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from pytest_wfstate.errors import CannotLock

try:
    import fcntl
except ImportError:  # Windows: fail when a lock is needed, not when the package is imported
    fcntl = None  # type: ignore[assignment]

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}

_held: set[int] = set()
_forking = threading.RLock()  # held across a fork, and until a new descriptor is in `_held`


class Kind(enum.Enum):
    """How a folder is locked: to change it, or to read several of its files at one moment."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@contextlib.contextmanager
def locked(home: Path, kind: Kind) -> Iterator[int]:
    """Hold the lock on the folder `home`, and yield a descriptor of it.

    Raises:
        FileNotFoundError: the folder does not exist.
        CannotLock: its file system does not support such locks.

    """
    while True:
        with _forking:
            fd = os.open(home, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            _held.add(fd)
        try:
            _flock(fd, kind, home)
            # While we waited, the folder may have been removed and recreated: this lock would guard nothing.
            if os.path.samestat(os.fstat(fd), os.stat(home)):
                yield fd
                return
        finally:
            _release(fd)


def _flock(fd: int, kind: Kind, home: Path) -> None:
    if fcntl is None:
        raise CannotLock("file stores need flock, which this system does not have. Use a SQL or Redis store here.")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if kind is Kind.EXCLUSIVE else fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise CannotLock(
            error.errno,
            f"the folder cannot be locked ({error.strerror}): its file system, perhaps a network share, does not "
            "support flock on folders. Keep the store on a local disk, or use a SQL or Redis store",
            str(home),
        ) from error


def _release(fd: int) -> None:
    if fd not in _held:  # this is a child, forked while its parent held the lock
        return
    # Closing alone is not enough: a child forked meanwhile shares the lock through its copy of fd.
    # What cannot be locked cannot be unlocked either, and `_flock` has reported that.
    with contextlib.suppress(OSError):
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)
    _held.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    """Close the copies of held locks that a fork made, or the child would hold them after its parent died."""
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_in_child)
