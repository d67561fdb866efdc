"""The lock on a folder: held by one process at a time, released when that process dies.

It is `flock` on the folder itself, so it leaves no file behind and a killed worker blocks no other. Every use opens
the folder again: two open file descriptions exclude each other even in one process, so threads need no other lock.

Waiting is limited. `flock` has no time limit of its own, so a waiter tries again and again, and counts how long it
slept: a frozen clock does not freeze it, and a slow machine only makes it more patient. Only one that may wait forever
waits in the kernel.

Readers that overlap would keep a writer out forever. So a writer that has to wait does so behind a gate, a file that it
holds locked meanwhile, and a reader passes that gate first, if there is one: those who have the lock leave, nobody else
gets in, and the writer is next. The gate excludes nobody from the folder, it only orders who comes next. Where it
cannot be created or opened, all go on without it.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import math
import os
import time
from collections.abc import Generator, Iterable
from pathlib import Path

from pytest_wfstate.errors import CannotLock, LockTimeout
from pytest_wfstate.stores.file.descriptors import opened_file_if_possible, opened_folder
from pytest_wfstate.stores.file.lock_holders import holders
from pytest_wfstate.stores.file.scope import scope

try:
    import fcntl
except ImportError:  # Windows: fail when a lock is needed, not when the package is imported
    fcntl = None  # type: ignore[assignment]

GATE = ".wfstate.gate"
LONGEST_WAIT = 20.0  # seconds, as in the SQL stores
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.004  # short: whoever waits must hit the moment between two other holders
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}


class Kind(enum.Enum):
    """How a folder is locked: to change it, or to read several of its files at one moment."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


def check_wait(seconds: object) -> float:
    """Return for how many seconds to wait for a lock.

    Raises:
        ValueError: it is negative or not a number.

    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or math.isnan(seconds) or seconds < 0:
        raise ValueError(
            f"lock_timeout is {seconds!r}. It must be a number of seconds, at least 0; math.inf waits forever."
        )
    return seconds


@scope
def locked(home: Path, kind: Kind, wait: float = LONGEST_WAIT, *, mode: int = 0o600) -> Generator[int | None]:
    """Hold the lock on the folder `home`, and yield a descriptor of it; None if it does not exist.

    `mode` is that of the gate, if it has to be created.

    Raises:
        CannotLock: its file system does not support such locks.
        LockTimeout: another holder did not release it within `wait` seconds.

    """
    while True:
        with opened_folder(home, before_close=_unlock) as fd:
            if fd is not None:
                _lock(fd, kind, _Waiter(home, wait), mode)
            # While we waited, the folder may have been removed and recreated: this lock would guard nothing.
            if fd is None or _is_at(fd, home):
                yield fd
                return


def _is_at(fd: int, home: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(home))
    except FileNotFoundError:
        return False


def _unlock(fd: int) -> None:
    # Closing alone is not enough: a child that was forked without our hook shares the lock through its copy.
    # What cannot be locked cannot be unlocked either, and `_flock` has reported that.
    with contextlib.suppress(OSError):
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)


def _lock(fd: int, kind: Kind, waiter: _Waiter, mode: int) -> None:
    if fcntl is None:
        raise CannotLock("file stores need flock, which this system does not have. Use a SQL or Redis store here.")
    if kind is Kind.EXCLUSIVE and _flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, waiter.home):
        return
    flags = os.O_RDONLY | (os.O_CREAT if kind is Kind.EXCLUSIVE else 0)  # a reader changes nothing
    with opened_file_if_possible(waiter.home / GATE, flags, mode, before_close=_unlock) as gate:
        if gate is not None:
            waiter.lock(gate, fcntl.LOCK_EX, fd, gate)
        waiter.lock(fd, fcntl.LOCK_EX if kind is Kind.EXCLUSIVE else fcntl.LOCK_SH, fd)


class _Waiter:
    """A call that waits for the lock on the folder `home`: how long it may, and how long it has."""

    def __init__(self, home: Path, wait: float) -> None:
        self.home = home
        self._wait = wait
        self._waited = 0.0
        self._pause = _FIRST_PAUSE

    def lock(self, fd: int, how: int, *held: int) -> None:
        """Lock `fd`. An error names the holders of `held`."""
        how |= 0 if self._wait == math.inf else fcntl.LOCK_NB
        while not _flock(fd, how, self.home):
            if self._waited >= self._wait:
                raise _timeout(held, self.home, self._wait)
            time.sleep(self._pause)
            self._waited += self._pause
            self._pause = min(self._pause * 1.5, _LONGEST_PAUSE)


def _flock(fd: int, how: int, home: Path) -> bool:
    """Lock `fd`, and return whether it is: not if another has it, and `how` is not to wait."""
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise CannotLock(
            error.errno,
            f"the folder cannot be locked ({error.strerror}): its file system, perhaps a network share, does not "
            "support flock on folders. Keep the store on a local disk, or use a SQL or Redis store",
            str(home),
        ) from error
    return True


def _timeout(held: Iterable[int], home: Path, wait: float) -> LockTimeout:
    return LockTimeout(
        errno.ETIMEDOUT,
        f"the folder is still locked after {wait:g} s. {holders(held)}. Nothing was changed. Let that call finish or "
        "end that process and try again, or open the store with a longer lock_timeout",
        str(home),
    )
