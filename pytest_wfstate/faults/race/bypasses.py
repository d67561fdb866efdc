"""Bypasses: what a client does to files without its stand-ins, which the schedule therefore cannot interleave.

Python raises an audit event for many calls, whoever makes them. One that a function of this package makes was a step
of the schedule; any other is a call of native code, or through a reference that could not be replaced.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pytest_wfstate.faults.record.audit import CHANGES, CHILDREN, absolute
from pytest_wfstate.faults.record.owners import OURS

CHILD = "a child process"

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
_LOCKS = {"fcntl.flock", "fcntl.lockf", "os.lockf", "fcntl.fcntl"}
_LOCKING = {fcntl.F_SETLK, fcntl.F_SETLKW, getattr(fcntl, "F_OFD_SETLK", 37), getattr(fcntl, "F_OFD_SETLKW", 38)}


def audit_hook(home: str, note: Callable[[str], None]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that notes whatever bypasses the stand-ins: on files below home, and locks on any file."""

    def is_below(path: Any, folder: int = -1) -> bool:
        place = absolute(path, folder, follow=isinstance(path, int))
        return place == home or place.startswith(f"{home}/")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in CHILDREN:
            note(CHILD)
        elif event == "sqlite3.connect":
            note("SQLite")
        elif event == "mmap.__new__":
            if args[0] >= 0 and is_below(args[0]):
                note("a memory map")
        elif event in _LOCKS:
            if not _is_ours() and (event != "fcntl.fcntl" or args[1] in _LOCKING):
                note("a lock by a call that it could not replace")
        elif event in _PATHS and not _is_ours():
            what, paths = _PATHS[event]
            for path, folder in _arguments(args, paths):
                if is_below(path, folder):
                    name = absolute(path, folder).removeprefix(home).lstrip("/") or "home"
                    note(f"{name}, which was {what} by native code or by a call that it could not replace")

    return hook


def _arguments(args: tuple[Any, ...], paths: tuple[tuple[int, int | None], ...]) -> Iterator[tuple[Any, int]]:
    for path, folder in paths:
        given = args[path] if args[path] is not None else "."
        yield given, -1 if folder is None else args[folder]


def _is_ours() -> bool:
    """Whether a function of this package makes the call that raised the event."""
    return f"{sys._getframe(2).f_globals.get('__name__')}.".startswith(OURS)
