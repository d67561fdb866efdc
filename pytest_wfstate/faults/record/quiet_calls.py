"""Calls that change nothing on the disk, but may fail: reads, listings of folders, and closes.

They are not recorded. They are watched only for a gate that makes such calls fail, below home. Closing a file fails
where its data is written back only then, as on NFS (close(2)): what was written since the last fsync is lost.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_wfstate.faults.record.active import Watch, announced
from pytest_wfstate.faults.record.gate import Intent, Room
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.ops import Truncate, Write

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

# The real calls: a recorder replaces those in `os`.
_stat, _fstat, _close, _ftruncate, _pwrite = os.stat, os.fstat, os.close, os.ftruncate, os.pwrite
_READERS = {name: getattr(os, name) for name in ("read", "readinto", "pread", "readv", "preadv") if hasattr(os, name)}
_LISTERS = {name: getattr(os, name) for name in ("listdir", "scandir")}


def reading(recorder: Recorder, fd: int) -> None:
    """Ask the gate about a read of a regular file below home.

    Raises:
        OSError: the read is to fail.
    """
    status = _fstat(fd)
    if stat.S_ISREG(status.st_mode):
        ask(recorder, "read", status, fd)


def listing(recorder: Recorder, path: Any) -> None:
    """Ask the gate about a listing of a folder, home or below.

    Raises:
        OSError: the listing is to fail.
    """
    try:
        status = _stat("." if path is None else path)
    except (OSError, TypeError, ValueError):
        return  # the call will fail too
    ask(recorder, "list", status, None)


def closing(recorder: Recorder, fd: int, make: Callable[[], None]) -> None:
    """Close a file. If the gate makes that fail, what was not flushed is lost, and the descriptor is closed anyway."""
    try:
        _ask_close(recorder, fd)
    finally:
        make()


def _ask_close(recorder: Recorder, fd: int) -> None:
    log, gate = recorder.log, recorder.gate
    try:
        status, flags = _fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL)
    except OSError:
        return  # the call will fail too
    if not stat.S_ISREG(status.st_mode) or flags & os.O_ACCMODE == os.O_RDONLY:
        return
    with log.lock:
        node = log.node(status, fd)
        path, unflushed = log.path(node), log.unflushed(node)
    if gate is None or path is None or unflushed.now == unflushed.before:
        return
    try:
        gate.before(Intent("close", path, room="needs" if unflushed.grew else "same"))
    except OSError:
        with log.making():
            announced(_ftruncate, fd, 0)
            log.add(Truncate(node, 0, causing_line()))
            if unflushed.before:
                _pwrite(fd, unflushed.before, 0)
                log.add(Write(node, 0, unflushed.before, causing_line()))
            log.settled(_fstat(fd))
        raise


def ask(recorder: Recorder, kind: str, status: os.stat_result, source: Any, room: Room = "same") -> None:
    """Ask the gate about a call on a file or folder, if that is home or below.

    Raises:
        OSError: the call is to fail.
    """
    with recorder.log.lock:
        path = recorder.log.path(recorder.log.node(status, source))
    if path is not None and recorder.gate is not None:
        recorder.gate.before(Intent(kind, path, room=room))


def _reader(name: str) -> Watch:
    def call(recorder: Recorder, fd: int, *args: Any) -> Any:
        reading(recorder, fd)
        return _READERS[name](fd, *args)

    return call


def _lister(name: str) -> Watch:
    def call(recorder: Recorder, path: Any = None) -> Any:
        listing(recorder, path)
        return _LISTERS[name](path)

    return call


def _closer(recorder: Recorder, fd: int) -> None:
    closing(recorder, fd, lambda: _close(fd))


AUDITED: dict[str, Watch] = {name: _lister(name) for name in _LISTERS}
UNAUDITED: dict[str, Watch] = {**{name: _reader(name) for name in _READERS}, "close": _closer}
