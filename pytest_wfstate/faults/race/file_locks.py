"""Stand-ins for the calls that lock files. A client that would wait for a lock lets the others run instead.

Every lock is a step, wherever its file is: what matters about it is which client holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_wfstate.faults.race.file_steps import FileSteps

_real_fcntl, _real_flock, _real_lockf, _real_os_lockf = fcntl.fcntl, fcntl.flock, fcntl.lockf, os.lockf

TRIES = {
    getattr(fcntl, waiting): getattr(fcntl, trying)
    for waiting, trying in (
        ("F_SETLKW", "F_SETLK"),
        ("F_SETLKW64", "F_SETLK64"),
        ("F_OFD_SETLKW", "F_OFD_SETLK"),
    )
    if hasattr(fcntl, waiting)
}
"""The commands of fcntl(2) that wait for a lock, and those that do not."""
TESTS = {getattr(fcntl, name) for name in ("F_GETLK", "F_GETLK64", "F_OFD_GETLK") if hasattr(fcntl, name)}


class _LockCall(NamedTuple):
    """What a call does to a lock."""

    action: str
    """lock, unlock, test, or nothing."""
    try_lock: Callable[[], Any]
    """Make the call without waiting."""
    exclusive: bool = False
    may_wait: bool = False


def stand_ins(current: Callable[[], FileSteps | None]) -> list[tuple[Any, Any]]:
    """Return pairs of a real call and its stand-in. `current` returns the steps of this process."""
    return [
        (_real_flock, functools.partial(_flock, current)),
        (_real_lockf, functools.partial(_lockf, current)),
        (_real_fcntl, functools.partial(_fcntl, current)),
        (_real_os_lockf, functools.partial(_os_lockf, current)),
    ]


def free_locks(fd: int) -> None:
    """Free all locks of a descriptor, which stays open: whoever keeps it in memory may use it again."""
    whole_file = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
    for free in (
        lambda: _real_flock(fd, fcntl.LOCK_UN),
        lambda: _real_lockf(fd, fcntl.LOCK_UN),
        lambda: _real_fcntl(fd, fcntl.F_OFD_SETLK, whole_file),
    ):
        with contextlib.suppress(OSError):
            free()


def _flock(current: Callable[[], FileSteps | None], fd: Any, operation: int, /) -> Any:
    steps = current()
    if steps is None or not steps.is_on:
        return _real_flock(fd, operation)
    call = _by_flags(operation, lambda flags: _real_flock(fd, flags))
    return _make(steps, fd, "whole", call)


def _lockf(current: Callable[[], FileSteps | None], fd: Any, cmd: int, /, *args: Any) -> Any:
    steps = current()
    if steps is None or not steps.is_on:
        return _real_lockf(fd, cmd, *args)
    call = _by_flags(cmd, lambda flags: _real_lockf(fd, flags, *args))
    return _make(steps, fd, "range", call)


def _os_lockf(current: Callable[[], FileSteps | None], fd: int, command: int, length: int, /) -> Any:
    steps = current()
    if steps is None or not steps.is_on:
        return _real_os_lockf(fd, command, length)
    action = {os.F_ULOCK: "unlock", os.F_TEST: "test", os.F_LOCK: "lock", os.F_TLOCK: "lock"}.get(command, "")
    trying = os.F_TLOCK if command == os.F_LOCK else command
    call = _LockCall(action, lambda: _real_os_lockf(fd, trying, length), exclusive=True, may_wait=command == os.F_LOCK)
    return _make(steps, fd, "range", call)


def _fcntl(current: Callable[[], FileSteps | None], fd: Any, cmd: int, arg: Any = 0, /) -> Any:
    steps = current()
    is_lock = cmd in TESTS or cmd in TRIES or cmd in TRIES.values()
    if steps is None or not steps.is_on or not is_lock or not isinstance(arg, (bytes, bytearray, memoryview)):
        return _real_fcntl(fd, cmd, arg)
    (kind,) = struct.unpack_from("h", arg)  # l_type, the first field of struct flock
    action = "test" if cmd in TESTS else "unlock" if kind == fcntl.F_UNLCK else "lock"
    call = _LockCall(
        action,
        lambda: _real_fcntl(fd, TRIES.get(cmd, cmd), arg),
        exclusive=kind == fcntl.F_WRLCK,
        may_wait=cmd in TRIES,
    )
    return _make(steps, fd, "range", call)


def _by_flags(flags: int, real: Callable[[int], Any]) -> _LockCall:
    if flags & fcntl.LOCK_UN:
        return _LockCall("unlock", lambda: real(flags))
    return _LockCall(
        "lock",
        lambda: real(flags | fcntl.LOCK_NB),
        exclusive=bool(flags & fcntl.LOCK_EX),
        may_wait=not flags & fcntl.LOCK_NB,
    )


def _make(steps: FileSteps, fd: Any, kind: Any, call: _LockCall) -> Any:
    number = fd if isinstance(fd, int) else fd.fileno()
    if call.action == "lock":
        return steps.lock(number, kind, call.try_lock, exclusive=call.exclusive, may_wait=call.may_wait)
    if call.action == "unlock":
        return steps.unlock(number, kind, call.try_lock)
    if call.action == "test":
        steps.test_lock(number)
    return call.try_lock()
