"""The audit hook: detects file operations that bypassed the stand-ins.

Python raises an audit event for many calls that touch files, whoever makes them. A hook cannot be removed, so there is
one, added with the first recorder; without an active recorder it returns at once.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import sys
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_wfstate.faults.record.active import active
from pytest_wfstate.faults.record.os_calls import CHANGING

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

Handler = Callable[["Recorder", tuple[Any, ...]], None]


@functools.cache
def add_hook() -> None:
    """Add the hook, once per process."""
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    recorder = active.recorder
    if recorder is None:
        return
    handler = _EVENTS.get(event)
    if handler is not None and not active.thread.announced:
        handler(recorder, args)


def _opened(recorder: Recorder, args: tuple[Any, ...]) -> None:
    path, mode, flags = args
    is_file_object = isinstance(mode, str)  # which reads and writes in native code; that of os.open is None
    if flags & CHANGING or (is_file_object and set(mode) & set("wax+")):
        _note(recorder, "opened for writing", absolute(path, follow=True))
    elif is_file_object and recorder.injects_errors:
        _note(recorder, "opened for reading", absolute(path, follow=True))


def _listed(recorder: Recorder, args: tuple[Any, ...]) -> None:
    if recorder.injects_errors:
        _note(recorder, "listed", absolute("." if args[0] is None else args[0], follow=True))


def _changed(what: str, paths: tuple[tuple[int, int], ...]) -> Handler:
    """Handle a call that changes names."""

    def handler(recorder: Recorder, args: tuple[Any, ...]) -> None:
        for path, folder in paths:
            _note(recorder, what, absolute(args[path], args[folder]))

    return handler


def _truncated(recorder: Recorder, args: tuple[Any, ...]) -> None:
    _note(recorder, "truncated", absolute(args[0], follow=True))


def _mapped(recorder: Recorder, args: tuple[Any, ...]) -> None:
    fd, _, access, _ = args
    shared = access in (0, mmap.ACCESS_WRITE)  # 0: writable, and shared unless `flags`, not in the event, say no
    if fd >= 0 and shared and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        path = recorder.log.path_below(absolute(fd))
        if path is not None:
            recorder.log.cannot_see(f"{path} was mapped by mmap: writes through the mapping cannot be seen.")


def _connected(recorder: Recorder, args: tuple[Any, ...]) -> None:
    database = args[0]
    text = os.fsdecode(database) if isinstance(database, (str, bytes, os.PathLike)) else ""
    if text.startswith("file:"):
        text = urllib.parse.unquote(urllib.parse.urlsplit(text).path)
    if text and text != ":memory:" and recorder.log.path_below(absolute(text, follow=True)) is not None:
        recorder.opened_by_sqlite(text)


def _child(call: str) -> Handler:
    return lambda recorder, _: recorder.started_child(call)


def absolute(path: Any, folder: int = -1, *, follow: bool = False) -> str:
    """Return the absolute path that a call refers to, with symlinks resolved, or "" if there is none."""
    if isinstance(path, int):
        path, follow = f"/proc/self/fd/{path}", True
    try:
        text = os.path.join(f"/proc/self/fd/{folder}" if folder >= 0 else os.getcwd(), os.fsdecode(path))
        head, name = os.path.split(text.rstrip("/"))
        return os.path.realpath(text) if follow else os.path.join(os.path.realpath(head), name)
    except (OSError, TypeError, ValueError):
        return ""  # the call will fail too


def _note(recorder: Recorder, what: str, place: str) -> None:
    path = recorder.log.path_below(place)
    if path is not None:
        recorder.log.cannot_see(
            f"{path} was {what} by a call that the recorder could not see: made by native code, or through a reference "
            "to a Python function that the code under test took before recording began."
        )


CHANGES: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "os.rename": ("renamed", ((0, 2), (1, 3))),
    "os.remove": ("removed", ((0, 1),)),
    "os.mkdir": ("created", ((0, 2),)),
    "os.rmdir": ("removed", ((0, 1),)),
    "os.link": ("linked", ((1, 3),)),
    "os.symlink": ("created", ((1, 2),)),
}
"""Events of calls that change names: what they do, and the positions of each path and of its folder's descriptor."""

CHILDREN = {
    "os.fork": "os.fork",
    "os.forkpty": "os.forkpty",
    "os.posix_spawn": "os.posix_spawn",
    "os.exec": "os.exec",
    "os.system": "os.system",
    "subprocess.Popen": "subprocess or multiprocessing",
}
"""Events of calls that start a child process or replace this one, and what does."""

_EVENTS: dict[str, Handler] = {
    "open": _opened,
    "os.truncate": _truncated,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "mmap.__new__": _mapped,
    "sqlite3.connect": _connected,
    **{event: _changed(what, paths) for event, (what, paths) in CHANGES.items()},
    **{event: _child(call) for event, call in CHILDREN.items()},
}
