"""Stand-ins for Python's file calls, those that only read included, which wait for the schedule.

They replace the real calls wherever a loaded module keeps a reference to one. They are for processes forked for this
purpose alone: what `install` replaces stays replaced.
"""

from __future__ import annotations

import builtins
import fcntl
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.race.file_steps import FileSteps
from pytest_wfstate.faults.record import file_io
from pytest_wfstate.faults.record.rebind import Rebinding, References

_UNSEEN = {
    "sqlite3.connect": "SQLite",
    "os.fork": "a child process",
    "subprocess.Popen": "a child process",
    "os.posix_spawn": "a child process",
    "mmap.__new__": "a memory map",
}
_REAL = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_real_open, _real_flock, _real_lockf, _real_sleep = builtins.open, fcntl.flock, fcntl.lockf, time.sleep
_RealFileIO = file_io.RealFileIO

_PATHS = {
    *("open", "stat", "lstat", "access", "listdir", "scandir", "readlink", "mkdir", "rmdir", "unlink", "remove"),
    *("truncate", "chmod", "utime"),
}
_PAIRS = {"rename", "replace", "link", "symlink"}
_FDS = {
    *("read", "pread", "readv", "preadv", "write", "pwrite", "writev", "pwritev", "ftruncate", "fstat"),
    "posix_fallocate",
}
_WATCHED = _PATHS | _PAIRS | _FDS | {"close", "sendfile", "copy_file_range"}
_OPENS_TO_CHANGE = os.O_CREAT | os.O_TRUNC

_current: FileSteps | None = None


def install(steps: FileSteps, references: References) -> None:
    """Replace all file calls of this process for good, wherever `find_calls` found one."""
    global _current
    _current = steps
    sys.addaudithook(functools.partial(_note_unseen, steps))
    _rebinding.do(references, sys._getframe(1))


def _note_unseen(steps: FileSteps, event: str, _: Any) -> None:
    if event in _UNSEEN and steps.is_on and _UNSEEN[event] not in steps.unseen:
        steps.unseen.append(_UNSEEN[event])


def _os_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Stand in for a function of `os`."""
    steps = _current
    if steps is None or not steps.is_on:
        return _REAL[name](*args, **kwargs)
    _step(steps, name, args, kwargs)
    try:
        return _REAL[name](*args, **kwargs)
    except OSError as error:
        steps.failed(error)
        raise


def _step(steps: FileSteps, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    first: Any = args[0] if args else kwargs.get("path", kwargs.get("src"))
    if name == "close":
        steps.close(first)
    elif name == "open":
        flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
        steps.step("open", path=first, dir_fd=kwargs.get("dir_fd"), writes=flags & _OPENS_TO_CHANGE)
    elif name in _PAIRS:
        to = args[1] if len(args) > 1 else kwargs.get("dst")
        path = None if name == "symlink" else first
        to_dir_fd = kwargs.get("dst_dir_fd", kwargs.get("dir_fd"))
        steps.step(name, path=path, to=to, dir_fd=kwargs.get("src_dir_fd"), to_dir_fd=to_dir_fd)
    elif isinstance(first, int):
        steps.step(name, fd=args[1] if name == "copy_file_range" else first)
    elif name in _PATHS:
        steps.step(name, path=first if first is not None else ".", dir_fd=kwargs.get("dir_fd"))


def _flock(fd: Any, operation: int) -> Any:
    number = fd if isinstance(fd, int) else fd.fileno()
    held = (_REAL["fstat"](number).st_ino, bool(operation & fcntl.LOCK_EX))
    return _lock(number, operation, held, lambda flags: _real_flock(fd, flags))


def _lockf(fd: Any, cmd: int, *args: Any) -> Any:
    number = fd if isinstance(fd, int) else fd.fileno()
    return _lock(number, cmd, None, lambda flags: _real_lockf(fd, flags, *args))


def _lock(fd: int, flags: int, held: tuple[int, bool] | None, real: Callable[[int], Any]) -> Any:
    steps = _current
    if steps is None or not steps.is_on:
        return real(flags)
    if flags & fcntl.LOCK_UN:
        steps.unlock(fd)
        return real(flags)
    return steps.lock(fd, lambda: real(flags | fcntl.LOCK_NB), held, may_wait=not flags & fcntl.LOCK_NB)


def _sleep(seconds: float, /) -> None:
    steps = _current
    if steps is None or not steps.is_on:
        return _real_sleep(seconds)
    steps.sleep()
    return None


class SteppedFile(_RealFileIO, metaclass=file_io.IsFileIO):
    """A raw file whose operations wait for the schedule."""

    def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
        steps = _current
        if steps is not None and opener is None and not isinstance(file, int):
            steps.step("open", path=file, writes=any(letter in mode for letter in "wxa"))
        try:
            super().__init__(file, mode, closefd, opener)
        except OSError as error:
            if steps is not None:
                steps.failed(error)
            raise

    def write(self, data: Any, /) -> Any:
        """Write when the schedule allows."""
        self._step("write")
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size when the schedule allows."""
        self._step("ftruncate")
        return super().truncate(size)

    def readinto(self, buffer: Any, /) -> Any:
        """Read when the schedule allows."""
        self._step("read")
        return super().readinto(buffer)

    def read(self, size: int | None = -1, /) -> Any:
        """Read when the schedule allows."""
        self._step("read")
        return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        """Read when the schedule allows."""
        self._step("read")
        return super().readall()

    def close(self) -> None:
        """Close when the schedule allows."""
        steps = _current
        if steps is not None and not self.closed:
            steps.close(self.fileno())
        super().close()

    def _step(self, kind: str) -> None:
        if _current is not None:
            _current.step(kind, fd=self.fileno())


def _open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    steps = _current
    if steps is None or not steps.is_on:
        return _real_open(file, mode, *args, **kwargs)
    return file_io.built(SteppedFile, file, mode, *args, **kwargs)


_STAND_INS: list[tuple[Any, Any]] = [
    *((_REAL[name], functools.partial(_os_call, name)) for name in sorted(_WATCHED) if name in _REAL),
    (_real_flock, _flock),
    (_real_lockf, _lockf),
    (_real_open, _open_file),
    (_real_sleep, _sleep),
    (_RealFileIO, SteppedFile),
]
_rebinding = Rebinding()


def find_calls() -> References:
    """Find the file calls that modules keep references to, once for all processes forked from this one."""
    return _rebinding.find(_STAND_INS)
