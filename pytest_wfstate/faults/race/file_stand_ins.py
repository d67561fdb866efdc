"""Stand-ins for Python's file calls, those that only read included, which wait for the schedule.

They replace the real calls wherever a loaded module keeps a reference to one. They are for processes forked for this
purpose alone: what `install` replaces stays replaced.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.faults.race import file_locks, waits
from pytest_wfstate.faults.race.bypasses import CHILD, audit_hook
from pytest_wfstate.faults.race.clocks import CLOCK_IDS
from pytest_wfstate.faults.race.file_calls import STEPS, Effect, Target, is_probe, opening, targets_of
from pytest_wfstate.faults.race.file_steps import FileSteps
from pytest_wfstate.faults.race.listings import SteppedEntry, SteppedListing
from pytest_wfstate.faults.race.lookup import Place
from pytest_wfstate.faults.record import file_io
from pytest_wfstate.faults.record.os_calls import real_fork_exec
from pytest_wfstate.faults.record.rebind import FoundReferences, Rebinding, References
from pytest_wfstate.faults.record.recorder import PAIRS

_REAL = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_real_open, _real_open_code = builtins.open, io.open_code
_RealFileIO = file_io.RealFileIO

_FLAGS = {"w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT}
_OF_PROCESSES = {"getpgid", "getsid", "pidfd_open"}  # calls that fail if a process is dead

_current: FileSteps | None = None


def install(steps: FileSteps, references: References, place: Place) -> None:
    """Replace all file calls of this process for good, wherever `find_calls` found one, and note what bypasses them."""
    global _current
    _current = steps
    sys.addaudithook(audit_hook(place, _note_unseen, _look_at_process))
    _rebinding.do(references)


def _note_unseen(what: str) -> None:
    if _current is not None:
        _current.note_unseen(what)


def _look_at_process(pid: int) -> None:
    if _current is not None:
        _current.look_at_process(pid)


def _process_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Stand in for a function of `os` that fails if a process is dead."""
    _look_at_process(args[0] if args else kwargs.get("pid", 0))
    return _REAL[name](*args, **kwargs)


def _fork_exec(*args: Any) -> Any:
    _note_unseen(CHILD)
    return real_fork_exec(*args)


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
    finally:
        steps.made()


def _step(steps: FileSteps, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name == "close":
        steps.close(args[0] if args else kwargs["fd"])
    elif name == "dup2":
        steps.close(args[1] if len(args) > 1 else kwargs["fd2"])
    elif name == "closerange":
        steps.close_range(*args)
    else:
        targets = targets_of(name, args, kwargs)
        if name in ("stat", "lstat") and is_probe(sys._getframe(2)):
            targets = [target._replace(effect=Effect.PROBE) for target in targets]
        steps.step(name, *targets)


def _scandir(path: Any = None) -> Any:
    steps = _current
    if steps is None or not steps.is_on:
        return _REAL["scandir"](path)
    return SteppedListing(_os_call("scandir", path), path if isinstance(path, int) else None, steps)


class SteppedFile(_RealFileIO, metaclass=file_io.IsFileIO):
    """A raw file whose operations wait for the schedule."""

    def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
        steps = _current
        if steps is not None and opener is None and not isinstance(file, int):
            flags = sum(flag for letter, flag in _FLAGS.items() if letter in mode)
            steps.step("open", opening(file, flags))
        try:
            super().__init__(file, mode, closefd, opener)
        except OSError as error:
            if steps is not None:
                steps.failed(error)
            raise
        finally:
            if steps is not None:
                steps.made()

    def write(self, data: Any, /) -> Any:
        """Write when the schedule allows."""
        with self._change("write"):
            return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size when the schedule allows."""
        with self._change("ftruncate"):
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

    def seek(self, pos: int, whence: int = 0, /) -> int:
        """Seek, and if that depends on the file, when the schedule allows."""
        if whence not in (os.SEEK_SET, os.SEEK_CUR):
            self._step("seek")
        return super().seek(pos, whence)

    def close(self) -> None:
        """Close when the schedule allows."""
        steps = _current
        if steps is not None and not self.closed:
            steps.close(self.fileno())
        super().close()

    def _step(self, kind: str, effect: Effect = Effect.LOOK) -> None:
        if _current is not None:
            _current.step(kind, Target(self.fileno(), effect))

    @contextlib.contextmanager
    def _change(self, kind: str) -> Iterator[None]:
        self._step(kind, Effect.CHANGE)
        try:
            yield
        finally:
            if _current is not None:
                _current.made()


def _open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    steps = _current
    if steps is None or not steps.is_on:
        return _real_open(file, mode, *args, **kwargs)
    return file_io.built(SteppedFile, file, mode, *args, **kwargs)


def _open_code(path: Any) -> Any:
    return _open_file(path, "rb")


_STAND_INS: list[tuple[Any, Any]] = [
    *(
        (_REAL[name], functools.partial(_os_call, name))
        for name in sorted(STEPS - {"scandir", "lockf"})
        if name in _REAL
    ),
    *file_locks.stand_ins(lambda: _current),
    *((_REAL[name], functools.partial(_process_call, name)) for name in sorted(_OF_PROCESSES & _REAL.keys())),
    (_REAL["scandir"], _scandir),
    (os.DirEntry, SteppedEntry),
    (_real_open, _open_file),
    (_real_open_code, _open_code),
    (_RealFileIO, SteppedFile),
    *waits.STAND_INS,
    (real_fork_exec, _fork_exec),
]
_AUDITED = {
    *("open", "listdir", "scandir", "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink"),
    *("truncate", "ftruncate", "chmod", "fchmod", "lchmod", "chown", "fchown", "lchown", "utime", "lockf"),
    *("getxattr", "setxattr", "listxattr", "removexattr"),
}
_SILENT = {
    id(_REAL[name]): f"os.{name}"
    for name in _REAL.keys() - _AUDITED - _OF_PROCESSES  # which few clients make
    if any(real is _REAL[name] for real, _ in _STAND_INS)
}
_stand_in_for = {id(real): stand_in for real, stand_in in _STAND_INS}
_RECORDERS = [(kept, _stand_in_for[id(real)]) for real, kept in PAIRS if id(real) in _stand_in_for]
"""The stand-ins of recorders: what was made while one was active may hold them for good."""
_SILENT |= {id(kept): _SILENT[id(real)] for real, kept in PAIRS if id(real) in _SILENT}
_rebinding = Rebinding()


def are_found() -> bool:
    """Whether what `find_calls` found last is still all that modules hold."""
    return _rebinding.has_seen_all_modules()


def find_calls(known: FoundReferences | None = None) -> References:
    """Find who holds a file call, once for all processes forked from this one."""
    return _rebinding.find([*_STAND_INS, *_RECORDERS], _SILENT, known, CLOCK_IDS)
