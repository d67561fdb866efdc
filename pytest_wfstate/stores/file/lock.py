"""The lock on a folder: held by one process at a time, gone with the process that held it.

It is `flock` on the folder itself, so it leaves no file behind and a killed worker blocks nobody. Every use opens
the folder anew: two open descriptions exclude each other in one process as well, so threads need no other lock.
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
except ImportError:  # Windows: say so when a lock is asked for, not when the package is imported
    fcntl = None  # type: ignore[assignment]

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}

_held: set[int] = set()
_forking = threading.RLock()  # held by who forks, and while a descriptor is not in `_held` yet


class Kind(enum.Enum):
    """How a folder is locked: to change it, or to look at several of its files at once."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@contextlib.contextmanager
def locked(home: Path, kind: Kind) -> Iterator[int]:
    """Hold the lock on the folder `home`, and give a descriptor of it.

    Raises:
        FileNotFoundError: there is no such folder.
        CannotLock: its file system has no such locks.

    """
    while True:
        with _forking:
            fd = os.open(home, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            _held.add(fd)
        try:
            _flock(fd, kind, home)
            # While we waited, the folder may have been removed and made again: that lock would guard nothing.
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
            f"the folder cannot be locked ({error.strerror}): its file system, perhaps a network share, has no flock "
            "for folders. Keep the store on a local disk, or use a SQL or Redis store",
            str(home),
        ) from error


def _release(fd: int) -> None:
    if fd not in _held:  # this is a child, forked while its parent held the lock
        return
    # Unlocked by name, not by closing alone: a child forked meanwhile shares the lock through its copy of fd.
    # What cannot be locked cannot be unlocked either, and that was said when locking failed.
    with contextlib.suppress(OSError):
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)
    _held.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    """Give up the copies of held locks that a fork made, lest the child hold them after its parent died."""
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_in_child)
