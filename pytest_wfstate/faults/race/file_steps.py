"""File steps: a process that stops before each file operation below home, and makes it when the schedule allows."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_wfstate.faults.race.schedule import PROGRESS, Access, ClientProgress, Key
from pytest_wfstate.faults.source_lines import users_line

_LISTING = {"listdir", "scandir"}
_LOCKS = {"lock", "try lock", "unlock", "close"}
_CHANGING = {
    *("mkdir", "rmdir", "unlink", "remove", "truncate", "rename", "replace", "link", "symlink", "chmod", "utime"),
    *("write", "pwrite", "writev", "pwritev", "ftruncate", "posix_fallocate", "sendfile", "copy_file_range"),
    *_LOCKS,
}
_fstat, _lstat, _readlink = os.fstat, os.lstat, os.readlink  # the real ones, whatever stands in for them


class AttemptedAccess(NamedTuple):
    """An operation that was made or, if it was blocked, attempted."""

    access: Access
    blocked: bool = False
    acked: int = 0
    """How many values had been acknowledged before it."""


class FileSteps:
    """Lets a process make `allowance` file operations below `home`, then calls `stop` with the reason.

    `stop` returns when there is a new allowance.
    """

    def __init__(self, home: str, stop: Callable[[str], None]) -> None:
        self._home = os.path.realpath(home)
        self._stop = stop
        self._locked: dict[int, tuple[int, bool] | None] = {}
        """By descriptor: the inode, and whether the lock is exclusive; None for a lock of the whole process."""
        self._stepping = threading.RLock()
        self._inside = threading.local()
        self._attempts: list[AttemptedAccess] = []
        self.is_on = False
        self.lines = False
        """Whether to look up the user's lines, which is slow."""
        self.allowance = 0
        self.progress = ClientProgress()
        self.unseen: list[str] = []

    def begin(self) -> None:
        """Begin a run of the client."""
        self.progress = ClientProgress()
        PROGRESS.set(self.progress)
        self.unseen = []
        self.is_on = True

    def take_attempts(self) -> list[AttemptedAccess]:
        """Return the operations made since the last call."""
        attempts, self._attempts = self._attempts, []
        return attempts

    def step(self, kind: str, *, path: Any = None, fd: int | None = None, **more: Any) -> None:
        """Wait until the schedule allows an operation, if it is below home."""
        if not self.is_on or getattr(self._inside, "asking", False):
            return
        self._inside.asking = True  # the lookups below are not the client's operations
        try:
            places = self._places(path, more)
            if places or (fd is not None and self._opened(fd)):
                with self._stepping:
                    self._wait()
                    # Others may have run meanwhile: what counts is what it accesses now.
                    self._record(self._access(kind, places, fd, more))
        finally:
            self._inside.asking = False

    def lock(self, fd: int, try_lock: Callable[[], Any], held: tuple[int, bool] | None, *, may_wait: bool) -> Any:
        """Try a lock until it is free, without ever waiting in the kernel."""
        self.step("lock" if may_wait else "try lock", fd=fd)
        self._locked.pop(fd, None)  # the kernel gives it up to convert it
        while True:
            try:
                result = try_lock()
            except BlockingIOError:
                if not may_wait:
                    raise
                self._retry("blocked")
            else:
                self._locked[fd] = held
                return result

    def unlock(self, fd: int) -> None:
        """Wait until the schedule allows freeing a lock."""
        self.step("unlock", fd=fd)
        freed = self._locked.pop(fd, None)
        for other in [other for other, held in self._locked.items() if held and freed and held[0] == freed[0]]:
            del self._locked[other]  # it may be the same lock, through a duplicated descriptor

    def sleep(self) -> None:
        """Let others run instead of sleeping."""
        with self._stepping:
            self._wait()
            self._record(Access("sleep", "", users_line() if self.lines else None))
            self._retry("asleep")

    def close(self, fd: int) -> None:
        """Wait until the schedule allows closing a descriptor, if that frees a lock."""
        if fd in self._locked:
            self.step("close", fd=fd)
            del self._locked[fd]

    def failed(self, error: OSError) -> None:
        """Record how the last operation failed."""
        if self.is_on and self._attempts and not getattr(self._inside, "asking", False):
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            last = self._attempts[-1]
            self._attempts[-1] = last._replace(access=dataclasses.replace(last.access, error=name))

    def _wait(self) -> None:
        if self.allowance <= 0:
            self._stop("op")
        self.allowance -= 1

    def _record(self, access: Access) -> None:
        self._attempts.append(AttemptedAccess(access, acked=len(self.progress.acked)))
        self.progress.steps += 1

    def _retry(self, why: str) -> None:
        """Mark the last operation as blocked, and attempt it again as a new step."""
        if self._attempts:  # else it is a lock that is not below home
            last = self._attempts[-1]
            self._attempts[-1] = last._replace(blocked=True)
            self._stop(why)
            self.allowance -= 1
            self._record(last.access)

    def _places(self, path: Any, more: dict[str, Any]) -> list[str]:
        both = (self._place(path, more.get("dir_fd")), self._place(more.get("to"), more.get("to_dir_fd")))
        return [place for place in both if place]

    def _access(self, kind: str, places: list[str], fd: int | None, more: dict[str, Any]) -> Access:
        opened = self._opened(fd) if fd is not None else None
        reads: set[Key] = set()
        writes: set[Key] = set()
        changes = kind in _CHANGING or bool(more.get("writes"))
        accessed = writes if changes else reads
        for place in places:
            above, own = self._entries(place)
            reads.update(above)
            accessed.update(own)
            writes.update(("listing", folder, "") for _, folder, _ in own if changes)
            if (inode := _inode(place)) >= 0:
                accessed.add(("listing" if kind in _LISTING else "inode", inode, ""))
        if opened is not None:
            name, inode = opened
            places = places or [name]
            accessed.add(("lock" if kind in _LOCKS else "inode", inode, ""))
        names = tuple(os.path.relpath(place, self._home) for place in places)
        line = users_line() if self.lines else None
        held = frozenset(lock for lock in self._locked.values() if lock)
        return Access(kind, " to ".join(names), line, frozenset(reads), frozenset(writes), held, names)

    def _place(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the absolute path, if it is home or below."""
        if path is None or isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if not text.startswith("/"):
            text = os.path.join(os.getcwd() if dir_fd is None else _readlink(f"/proc/self/fd/{dir_fd}"), text)
        full = os.path.normpath(text)
        return full if full == self._home or full.startswith(self._home + "/") else None

    def _opened(self, fd: int) -> tuple[str, int] | None:
        """Return the path and inode of a descriptor, if it is of a file or folder below home."""
        try:
            status = _fstat(fd)
            name = _readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return None
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return None
        is_home = name == self._home or name.startswith(self._home + "/")
        return (name.removesuffix(" (deleted)"), status.st_ino) if is_home else None

    def _entries(self, place: str) -> tuple[list[Key], list[Key]]:
        """Return the entries on the way to a path, and its own; home has none."""
        entries: list[Key] = []
        folder = self._home
        for name in os.path.relpath(place, self._home).split("/") if place != self._home else ():
            entries.append(("entry", _inode(folder), name))
            folder = f"{folder}/{name}"
        return entries[:-1], entries[-1:]


def _inode(path: str) -> int:
    try:
        return _lstat(path).st_ino
    except OSError:
        return -1
