"""Bypasses: what a client does to files without its stand-ins, which the schedule therefore cannot interleave.

Python raises an audit event for many calls, whoever makes them. One that a function of this package makes was a step
of the schedule; any other is a call of native code, or through a reference that could not be replaced.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pytest_wfstate.faults.race.lookup import Place
from pytest_wfstate.faults.record.audit import CHANGES, CHILDREN, absolute
from pytest_wfstate.faults.record.owners import OURS

_fcntl = fcntl.fcntl  # the real one, whatever stands in for it

CHILD = "a child process"
BOUND = "a socket that is bound to an address, which only one client can be"

_READS: dict[str, tuple[str, tuple[tuple[int, int | None], ...]]] = {
    "os.listdir": ("listed", ((0, None),)),
    "os.scandir": ("listed", ((0, None),)),
    "os.chmod": ("changed", ((0, 2),)),
    "os.chown": ("changed", ((0, 3),)),
    "os.utime": ("changed", ((0, 3),)),
    "os.getxattr": ("read", ((0, None),)),
    "os.listxattr": ("read", ((0, None),)),
    "os.setxattr": ("changed", ((0, None),)),
    "os.removexattr": ("changed", ((0, None),)),
    "os.truncate": ("truncated", ((0, None),)),
}
_PATHS = {"open": ("opened", ((0, None),)), **CHANGES, **_READS}
_NATIVE = {
    *("open", "open64", "openat", "openat64", "creat", "creat64", "fopen", "fopen64", "freopen", "opendir", "readdir"),
    *("read", "pread", "pread64", "readv", "preadv", "fread", "fgets", "readlink", "access", "faccessat", "mmap"),
    *("stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "statx"),
    *("flock", "lockf", "lockf64", "fcntl", "fcntl64"),
}
"""Functions of the C library that read files or lock them. What others change is noticed by its result."""
_LOCKS = {"fcntl.flock", "fcntl.lockf", "os.lockf", "fcntl.fcntl"}
_LOCKING = {fcntl.F_SETLK, fcntl.F_SETLKW, getattr(fcntl, "F_OFD_SETLK", 37), getattr(fcntl, "F_OFD_SETLKW", 38)}


def audit_hook(
    place: Place, note: Callable[[str], None], look_at_process: Callable[[int], None]
) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that notes whatever bypasses the stand-ins: on files in their place, and locks on any file.

    It also notes memory maps that clients may share, and sockets that can serve as a lock, and calls
    `look_at_process` for each process that gets a signal.
    """

    def is_below(path: Any, folder: int = -1) -> bool:
        return place.holds(absolute(path, folder, follow=isinstance(path, int)))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in CHILDREN:
            note(CHILD)
        elif event == "sqlite3.connect":
            note("SQLite")
        elif event == "os.kill":
            look_at_process(args[0])
        elif event == "ctypes.dlsym":
            if args[1] in _NATIVE:
                note(f"{args[1]} of the C library, called with ctypes")
        elif event == "socket.bind":
            if _is_fixed(args[1]):
                note(BOUND)
        elif event == "mmap.__new__":
            if args[0] >= 0 and (is_below(args[0]) or _may_share(args[0], args[2])):
                note("a memory map")
        elif event in _LOCKS:
            if not _is_ours() and (event != "fcntl.fcntl" or args[1] in _LOCKING):
                note("a lock by a call that it could not replace")
        elif event in _PATHS and not _is_ours():
            what, paths = _PATHS[event]
            for path, folder in _arguments(args, paths):
                if is_below(path, folder):
                    note(bypassed(place.name(absolute(path, folder)), what))

    return hook


def bypassed(name: str, what: str) -> str:
    """Describe what was done to a file without a step."""
    return f"{'home' if name == '.' else name}, which was {what} by native code or by a call that it could not replace"


def _may_share(fd: int, access: int) -> bool:
    """Whether what is written to a map of a file may reach other processes: not to one that is private or read-only."""
    is_written = access in (mmap.ACCESS_DEFAULT, mmap.ACCESS_WRITE)
    return is_written and _fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _is_fixed(address: Any) -> bool:
    """Whether binding a socket to an address fails if another one has it, rather than taking any that is free."""
    return bool(address[1]) if isinstance(address, tuple) and len(address) > 1 else bool(address)


def _arguments(args: tuple[Any, ...], paths: tuple[tuple[int, int | None], ...]) -> Iterator[tuple[Any, int]]:
    for path, folder in paths:
        given = args[path] if args[path] is not None else "."
        yield given, -1 if folder is None else args[folder]


def _is_ours() -> bool:
    """Whether a function of this package makes the call that raised the event."""
    return f"{sys._getframe(2).f_globals.get('__name__')}.".startswith(OURS)
