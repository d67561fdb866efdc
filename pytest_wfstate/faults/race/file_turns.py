"""Turns: a process that asks before each file operation below home, and makes it when it is told to.

It stands in for the file calls of Python, those that only look included, wherever a loaded module keeps a reference to
one. It is for processes that are forked for nothing else: what it puts in place stays there.
"""

from __future__ import annotations

import builtins
import dataclasses
import errno
import fcntl
import functools
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_wfstate.faults.race.schedule import PROGRESS, Access, ClientProgress, Key
from pytest_wfstate.faults.record import file_io
from pytest_wfstate.faults.record.rebind import Rebinding, References
from pytest_wfstate.faults.source import users_line

_UNSEEN = {
    "sqlite3.connect": "SQLite",
    "os.fork": "a child process",
    "subprocess.Popen": "a child process",
    "os.posix_spawn": "a child process",
    "mmap.__new__": "a memory map",
}


class MadeAccess(NamedTuple):
    """An operation that was made."""

    access: Access
    in_vain: bool = False
    acked: int = 0
    """How much had been acknowledged before it."""


class Turns:
    """Lets a process make as many file operations below `home` as it is allowed; then it calls `stop`, with the reason.

    `stop` returns when there is a new allowance.
    """

    def __init__(self, home: str, stop: Callable[[str], None]) -> None:
        self._home = os.path.realpath(home)
        self._stop = stop
        self._locked: dict[int, tuple[int, bool] | None] = {}
        """By descriptor: the inode, and whether all others are kept out; nothing for a lock of the whole process."""
        self._taking = threading.RLock()
        self._inside = threading.local()
        self._made: list[MadeAccess] = []
        self.is_on = False
        self.lines = False
        """Whether to look for the user's lines, which takes its time."""
        self.allowance = 0
        self.progress = ClientProgress()
        self.unseen: list[str] = []

    def install(self, references: References) -> None:
        """Stand in for all file calls of this process, wherever `find_calls` found one, for good."""
        global _current
        _current = self
        sys.addaudithook(self._heard)
        _rebinding.do(references, sys._getframe(1))

    def begin(self) -> None:
        """Begin to count."""
        self.progress = ClientProgress()
        PROGRESS.set(self.progress)
        self.unseen = []
        self.is_on = True

    def take_made(self) -> list[MadeAccess]:
        """Give what was done since this was asked last."""
        made, self._made = self._made, []
        return made

    def take(self, kind: str, *, path: Any = None, fd: int | None = None, **more: Any) -> None:
        """Wait for the turn of an operation, if it is below home."""
        if not self.is_on or getattr(self._inside, "asking", False):
            return
        self._inside.asking = True  # what is looked up here is no operation of the client's
        try:
            places = self._places(path, more)
            if places or (fd is not None and self._opened(fd)):
                with self._taking:
                    self._wait()
                    # Others may have had their turns meanwhile: what counts is what it touches now.
                    self._note(self._touch(kind, places, fd, more))
        finally:
            self._inside.asking = False

    def lock(self, fd: int, make: Callable[[bool], Any], held: tuple[int, bool] | None, *, may_wait: bool) -> Any:
        """Try a lock until it is given, without ever waiting in the kernel."""
        self.take("lock" if may_wait else "try lock", fd=fd)
        self._locked.pop(fd, None)  # it is given up for another kind of lock
        while True:
            try:
                result = make(True)
            except BlockingIOError:
                if not may_wait:
                    raise
                self._in_vain("blocked")
            else:
                self._locked[fd] = held
                return result

    def unlock(self, fd: int) -> None:
        """Wait for the turn of freeing a lock."""
        self.take("unlock", fd=fd)
        freed = self._locked.pop(fd, None)
        for other in [other for other, held in self._locked.items() if held and freed and held[0] == freed[0]]:
            del self._locked[other]  # it may be the same one, by a descriptor that was copied

    def sleep(self) -> None:
        """Let others go on, instead of waiting for the clock."""
        with self._taking:
            self._wait()
            self._note(Access("sleep", "", users_line() if self.lines else None))
            self._in_vain("asleep")

    def closing(self, fd: int) -> None:
        """Wait for the turn of a close that may free a lock."""
        if fd in self._locked:
            self.take("close", fd=fd)
            del self._locked[fd]

    def failed(self, error: OSError) -> None:
        """Note how the operation that was made last has failed."""
        if self.is_on and self._made and not getattr(self._inside, "asking", False):
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            last = self._made[-1]
            self._made[-1] = last._replace(access=dataclasses.replace(last.access, error=name))

    def _wait(self) -> None:
        if self.allowance <= 0:
            self._stop("op")
        self.allowance -= 1

    def _note(self, access: Access) -> None:
        self._made.append(MadeAccess(access, acked=len(self.progress.acked)))
        self.progress.taken += 1

    def _in_vain(self, why: str) -> None:
        """Say that what was tried last led to nothing, and try it again in a turn of its own."""
        if self._made:  # else it is of a lock that is not below home
            last = self._made[-1]
            self._made[-1] = last._replace(in_vain=True)
            self._stop(why)
            self.allowance -= 1
            self._note(last.access)

    def _places(self, path: Any, more: dict[str, Any]) -> list[str]:
        both = (self._place(path, more.get("dir_fd")), self._place(more.get("to"), more.get("to_dir_fd")))
        return [place for place in both if place]

    def _touch(self, kind: str, places: list[str], fd: int | None, more: dict[str, Any]) -> Access:
        opened = self._opened(fd) if fd is not None else None
        reads: set[Key] = set()
        writes: set[Key] = set()
        changes = kind in _CHANGING or bool(more.get("writes"))
        touched = writes if changes else reads
        for place in places:
            above, own = self._entries(place)
            reads.update(above)
            touched.update(own)
            writes.update(("listing", folder, "") for _, folder, _ in own if changes)
            if (found := _inode(place)) >= 0:
                touched.add(("listing" if kind in _LISTING else "inode", found, ""))
        if opened is not None:
            name, inode = opened
            places = places or [name]
            touched.add(("lock" if kind in _LOCKS else "inode", inode, ""))
        names = tuple(os.path.relpath(place, self._home) for place in places)
        line = users_line() if self.lines else None
        held = frozenset(lock for lock in self._locked.values() if lock)
        return Access(kind, " to ".join(names), line, frozenset(reads), frozenset(writes), held, names)

    def _place(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Give the absolute path, if it is home or below."""
        if path is None or isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if not text.startswith("/"):
            text = os.path.join(os.getcwd() if dir_fd is None else _readlink(f"/proc/self/fd/{dir_fd}"), text)
        full = os.path.normpath(text)
        return full if full == self._home or full.startswith(self._home + "/") else None

    def _opened(self, fd: int) -> tuple[str, int] | None:
        try:
            found = _fstat(fd)
            name = _readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return None
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            return None
        is_home = name == self._home or name.startswith(self._home + "/")
        return (name.removesuffix(" (deleted)"), found.st_ino) if is_home else None

    def _entries(self, place: str) -> tuple[list[Key], list[Key]]:
        """Give the entries on the way to a path, and its own; home has none."""
        entries: list[Key] = []
        folder = self._home
        for name in os.path.relpath(place, self._home).split("/") if place != self._home else ():
            entries.append(("entry", _inode(folder), name))
            folder = f"{folder}/{name}"
        return entries[:-1], entries[-1:]

    def _heard(self, event: str, _: Any) -> None:
        if event in _UNSEEN and self.is_on and _UNSEEN[event] not in self.unseen:
            self.unseen.append(_UNSEEN[event])


_REAL = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_real_open, _real_flock, _real_lockf, _real_sleep = builtins.open, fcntl.flock, fcntl.lockf, time.sleep
_RealFileIO = file_io.RealFileIO
_fstat, _lstat, _readlink = os.fstat, os.lstat, os.readlink

_PATHS = {
    "open",
    "stat",
    "lstat",
    "access",
    "listdir",
    "scandir",
    "readlink",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "truncate",
    "chmod",
    "utime",
}
_PAIRS = {"rename", "replace", "link", "symlink"}
_FDS = {
    "read",
    "pread",
    "readv",
    "preadv",
    "write",
    "pwrite",
    "writev",
    "pwritev",
    "ftruncate",
    "fstat",
    "posix_fallocate",
}
_WATCHED = _PATHS | _PAIRS | _FDS | {"close", "sendfile", "copy_file_range"}
_LISTING = {"listdir", "scandir"}
_LOCKS = {"lock", "try lock", "unlock", "close"}
_CHANGING = {
    *("mkdir", "rmdir", "unlink", "remove", "truncate", "rename", "replace", "link", "symlink", "chmod", "utime"),
    *("write", "pwrite", "writev", "pwritev", "ftruncate", "posix_fallocate", "sendfile", "copy_file_range"),
    *_LOCKS,
}
_OPENS_TO_CHANGE = os.O_CREAT | os.O_TRUNC

_current: Turns | None = None


def _inode(path: str) -> int:
    try:
        return _lstat(path).st_ino
    except OSError:
        return -1


def _called(name: str, *args: Any, **kwargs: Any) -> Any:
    """Stand in for a call of `os`."""
    turns = _current
    if turns is None or not turns.is_on:
        return _REAL[name](*args, **kwargs)
    _take(turns, name, args, kwargs)
    try:
        return _REAL[name](*args, **kwargs)
    except OSError as error:
        turns.failed(error)
        raise


def _take(turns: Turns, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    first: Any = args[0] if args else kwargs.get("path", kwargs.get("src"))
    if name == "close":
        turns.closing(first)
    elif name == "open":
        flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
        turns.take("open", path=first, dir_fd=kwargs.get("dir_fd"), writes=flags & _OPENS_TO_CHANGE)
    elif name in _PAIRS:
        to = args[1] if len(args) > 1 else kwargs.get("dst")
        path = None if name == "symlink" else first
        turns.take(
            name,
            path=path,
            to=to,
            dir_fd=kwargs.get("src_dir_fd"),
            to_dir_fd=kwargs.get("dst_dir_fd", kwargs.get("dir_fd")),
        )
    elif isinstance(first, int):
        turns.take(name, fd=args[1] if name == "copy_file_range" else first)
    elif name in _PATHS:
        turns.take(name, path=first if first is not None else ".", dir_fd=kwargs.get("dir_fd"))


def _flock(fd: Any, operation: int) -> None:
    turns, number = _current, fd if isinstance(fd, int) else fd.fileno()
    if turns is None or not turns.is_on:
        return _real_flock(fd, operation)
    if operation & fcntl.LOCK_UN:
        turns.unlock(number)
        return _real_flock(fd, operation)

    def make(at_once: bool) -> None:
        _real_flock(fd, operation | fcntl.LOCK_NB if at_once else operation)

    held = (_fstat(number).st_ino, bool(operation & fcntl.LOCK_EX))
    turns.lock(number, make, held, may_wait=not operation & fcntl.LOCK_NB)
    return None


def _lockf(fd: Any, cmd: int, *args: Any) -> Any:
    turns, number = _current, fd if isinstance(fd, int) else fd.fileno()
    if turns is None or not turns.is_on:
        return _real_lockf(fd, cmd, *args)
    if cmd & fcntl.LOCK_UN:
        turns.unlock(number)
        return _real_lockf(fd, cmd, *args)

    def make(at_once: bool) -> Any:
        return _real_lockf(fd, cmd | fcntl.LOCK_NB if at_once else cmd, *args)

    return turns.lock(number, make, None, may_wait=not cmd & fcntl.LOCK_NB)


def _sleep(seconds: float, /) -> None:
    turns = _current
    if turns is None or not turns.is_on:
        return _real_sleep(seconds)
    turns.sleep()
    return None


class TurnFile(_RealFileIO, metaclass=file_io.IsFileIO):
    """A raw file that takes turns."""

    def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
        turns = _current
        if turns is not None and opener is None and not isinstance(file, int):
            turns.take("open", path=file, writes=any(one in mode for one in "wxa"))
        try:
            super().__init__(file, mode, closefd, opener)
        except OSError as error:
            if turns is not None:
                turns.failed(error)
            raise

    def write(self, data: Any, /) -> Any:
        """Write when it may."""
        self._take("write")
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size when it may."""
        self._take("ftruncate")
        return super().truncate(size)

    def readinto(self, buffer: Any, /) -> Any:
        """Read when it may."""
        self._take("read")
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> Any:
        """Read when it may."""
        self._take("read")
        return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        """Read when it may."""
        self._take("read")
        return super().readall()

    def close(self) -> None:
        """Close when it may."""
        turns = _current
        if turns is not None and not self.closed:
            turns.closing(self.fileno())
        super().close()

    def _take(self, kind: str) -> None:
        if _current is not None:
            _current.take(kind, fd=self.fileno())


def _open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    turns = _current
    if turns is None or not turns.is_on:
        return _real_open(file, mode, *args, **kwargs)
    return file_io.built(TurnFile, file, mode, *args, **kwargs)


_STAND_INS: list[tuple[Any, Any]] = [
    *((_REAL[name], functools.partial(_called, name)) for name in sorted(_WATCHED) if name in _REAL),
    (_real_flock, _flock),
    (_real_lockf, _lockf),
    (_real_open, _open_file),
    (_real_sleep, _sleep),
    (_RealFileIO, TurnFile),
]
_rebinding = Rebinding()


def find_calls() -> References:
    """Find the file calls that modules keep references to, once for all processes that are forked from this one."""
    return _rebinding.find(_STAND_INS)
