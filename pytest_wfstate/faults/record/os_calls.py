"""What each file call of `os` does to a disk, said just before the real call is made.

Each function here takes the recorder and then what its namesake in `os` takes. It makes the real call, through the
recorder, which logs the op. A call that will fail, or that changes nothing, yields no op.
"""

from __future__ import annotations

import _posixsubprocess
import dataclasses
import errno
import os
import select
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_wfstate.faults.record.active import Watch
from pytest_wfstate.faults.source import causing_line
from pytest_wfstate.faults.trace.ops import Allocate, Create, Fsync, Kind, Link, Op, Rename, Sync, Truncate, Unlink

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

T = TypeVar("T")

CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TMPFILE = getattr(os, "O_TMPFILE", -1)
_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # after such an fsync the pages count as clean

real = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
"""The real calls, by name, from before anything stood in for them."""

real_fork_exec = _posixsubprocess.fork_exec
_stat, _fstat, _lseek, _pread = os.stat, os.fstat, os.lseek, os.pread


# Names


def open_fd(recorder: Recorder, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
    def call() -> Any:
        return real["open"](path, flags, mode, dir_fd=dir_fd)

    return opening(recorder, path, flags, dir_fd, call, int) if flags & CHANGING else call()


def opening(
    recorder: Recorder,
    path: Any,
    flags: int,
    dir_fd: int | None,
    call: Callable[[], T],
    fileno: Callable[[T], int],
) -> T:
    """Make a call that opens a file to write it, which may create or empty it."""

    def found() -> os.stat_result | None:
        return _found(path, dir_fd, follow_symlinks=not flags & os.O_NOFOLLOW)

    def look() -> Op | None:
        there = found()
        if there is None:
            return _coming(recorder, path, dir_fd, "file") if flags & os.O_CREAT else None
        node = recorder.log.node(there, _full(path, dir_fd))
        if flags & os.O_TRUNC and not flags & os.O_EXCL and there.st_size:
            return Truncate(node, 0, causing_line())
        return None

    def born(op: Op, opened: T) -> Op:
        return _born(recorder, op, _fstat(fileno(opened)))

    if flags & _TMPFILE == _TMPFILE:
        recorder.made_unnamed(path, dir_fd)
        return call()
    there = found()
    if there is not None and not stat.S_ISREG(there.st_mode):
        return call()  # without the lock: a pipe waits here for whoever opens its other end
    return recorder.make(look, call, born)


def mkdir(recorder: Recorder, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    recorder.make(
        lambda: _coming(recorder, path, dir_fd, "folder"),
        lambda: real["mkdir"](path, mode, dir_fd=dir_fd),
        lambda op, _: _born(recorder, op, _stat(path, dir_fd=dir_fd, follow_symlinks=False)),
    )


def symlink(
    recorder: Recorder, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
) -> None:
    recorder.make(
        lambda: _coming(recorder, dst, dir_fd, "symlink", os.fsdecode(src)),
        lambda: real["symlink"](src, dst, target_is_directory, dir_fd=dir_fd),
        lambda op, _: _born(recorder, op, _stat(dst, dir_fd=dir_fd, follow_symlinks=False)),
    )


def link(
    recorder: Recorder,
    src: Any,
    dst: Any,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    follow_symlinks: bool = True,
) -> None:
    def look() -> Op | None:
        # Which of the two a link to a symlink gets depends on the system: here it is settled by looking afterwards.
        there = _found(src, src_dir_fd, follow_symlinks=False)
        entry = _entry(recorder, dst, dst_dir_fd)
        if there is None or entry is None or _found(dst, dst_dir_fd, follow_symlinks=False) is not None:
            return None
        node = recorder.arriving(there, _full(src, src_dir_fd), entry[0])
        return Link(*entry, node, causing_line())

    def settled(op: Op, _: None) -> Op:
        assert isinstance(op, Link)
        there = _stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False)
        return dataclasses.replace(op, node=recorder.arriving(there, _full(dst, dst_dir_fd), op.folder))

    recorder.make(
        look,
        lambda: real["link"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks),
        settled,
    )


def unlink(recorder: Recorder, path: Any, *, dir_fd: int | None = None) -> None:
    recorder.make(
        lambda: _going(recorder, path, dir_fd, folder=False),
        lambda: real["unlink"](path, dir_fd=dir_fd),
    )


def rmdir(recorder: Recorder, path: Any, *, dir_fd: int | None = None) -> None:
    recorder.make(
        lambda: _going(recorder, path, dir_fd, folder=True),
        lambda: real["rmdir"](path, dir_fd=dir_fd),
        kind="rmdir",
    )


def rename(
    recorder: Recorder, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    def look() -> Op | None:
        old, new = _entry(recorder, src, src_dir_fd), _entry(recorder, dst, dst_dir_fd)
        there = _found(src, src_dir_fd, follow_symlinks=False)
        if old is None or new is None or there is None:
            return None
        node = recorder.arriving(there, _full(src, src_dir_fd), new[0])
        target = _found(dst, dst_dir_fd, follow_symlinks=False)
        replaced = None if target is None else recorder.leaving(target, _full(dst, dst_dir_fd))
        if node == replaced:
            return None  # two names of one file: rename(2) does nothing
        return Rename(*old, *new, node, replaced, causing_line())

    recorder.make(look, lambda: real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd))


def _coming(recorder: Recorder, path: Any, dir_fd: int | None, kind: Kind, target: str = "") -> Op | None:
    there = _found(path, dir_fd, follow_symlinks=False)
    if there is not None and kind != "file":
        return None
    if there is not None:  # a symlink to nothing: what it names will come to be
        path, dir_fd = os.path.realpath(_full(path, dir_fd)), None
    entry = _entry(recorder, path, dir_fd)
    return None if entry is None else Create(*entry, -1, kind, target, causing_line())


def _born(recorder: Recorder, op: Op, found: os.stat_result) -> Op:
    return dataclasses.replace(op, node=recorder.log.born(found)) if isinstance(op, Create) else op


def _going(recorder: Recorder, path: Any, dir_fd: int | None, *, folder: bool) -> Op | None:
    there = _found(path, dir_fd, follow_symlinks=False)
    entry = _entry(recorder, path, dir_fd)
    if there is None or entry is None or stat.S_ISDIR(there.st_mode) != folder:
        return None
    if folder and recorder.gate is not None and os.listdir(_full(path, dir_fd)):
        return None
    return Unlink(*entry, recorder.leaving(there, _full(path, dir_fd)), causing_line())


def _entry(recorder: Recorder, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
    try:
        return recorder.log.entry(path, dir_fd)
    except (OSError, TypeError, ValueError):
        return None


def _found(path: Any, dir_fd: int | None, *, follow_symlinks: bool) -> os.stat_result | None:
    try:
        return _stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    except (OSError, TypeError, ValueError):
        return None


def _full(path: Any, dir_fd: int | None) -> Any:
    return path if dir_fd is None else os.path.join(f"/proc/self/fd/{dir_fd}", os.fsdecode(path))


# Content


def write(recorder: Recorder, fd: int, data: Any, /) -> Any:
    return writing(recorder, fd, data, lambda data: real["write"](fd, data))


def pwrite(recorder: Recorder, fd: int, data: Any, offset: int, /) -> Any:
    return writing(recorder, fd, data, lambda data: real["pwrite"](fd, data, offset), at=offset)


def writev(recorder: Recorder, fd: int, buffers: Sequence[Any], /) -> Any:
    data = b"".join(buffers)
    return writing(recorder, fd, data, lambda data: real["writev"](fd, [data]))


def pwritev(recorder: Recorder, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0, /) -> Any:
    data = b"".join(buffers)
    return writing(
        recorder, fd, data, lambda data: real["pwritev"](fd, [data], offset, flags), at=offset, flags=_as_open(flags)
    )


def writing(
    recorder: Recorder, fd: int, data: Any, call: Callable[[Any], Any], *, at: int | None = None, flags: int = 0
) -> Any:
    """Make a call that writes `data`, at an offset or where the descriptor stands."""

    def cut(limit: int | None) -> Any:
        return call(data if limit is None else memoryview(data).cast("B")[:limit])

    def taken(_: int, size: int) -> bytes:
        whole = data if type(data) is bytes else bytes(memoryview(data))
        return whole[:size]

    return recorder.write(fd, lambda: memoryview(data).nbytes, cut, taken, at, flags)


def sendfile(recorder: Recorder, out_fd: int, in_fd: int, offset: int | None, count: int) -> Any:
    def call(limit: int | None) -> Any:
        return real["sendfile"](out_fd, in_fd, offset, count if limit is None else limit)

    return _copying(recorder, in_fd, offset, out_fd, None, count, call)


def copy_file_range(
    recorder: Recorder, src: int, dst: int, count: int, offset_src: int | None = None, offset_dst: int | None = None
) -> Any:
    def call(limit: int | None) -> Any:
        size = count if limit is None else limit
        return real["copy_file_range"](src, dst, size, offset_src, offset_dst)

    return _copying(recorder, src, offset_src, dst, offset_dst, count, call)


def splice(
    recorder: Recorder,
    src: int,
    dst: int,
    count: int,
    offset_src: int | None = None,
    offset_dst: int | None = None,
    flags: int = 0,
) -> Any:
    def call(limit: int | None) -> Any:
        size = count if limit is None else limit
        return real["splice"](src, dst, size, offset_src, offset_dst, flags)

    return _copying(recorder, src, offset_src, dst, offset_dst, count, call)


def _copying(
    recorder: Recorder,
    src: int,
    offset_src: int | None,
    dst: int,
    offset_dst: int | None,
    count: int,
    call: Callable[[int | None], Any],
) -> Any:
    from_file = stat.S_ISREG(_fstat(src).st_mode)
    if not from_file and stat.S_ISREG(_fstat(dst).st_mode):
        select.select([src], [], [])  # without the lock: whoever feeds the pipe may need it

    def taken(offset: int, size: int) -> bytes:
        if not from_file:
            return recorder.read_back(dst, offset, size)
        return _pread(src, size, _lseek(src, 0, os.SEEK_CUR) - size if offset_src is None else offset_src)

    return recorder.write(dst, lambda: count, call, taken, offset_dst, 0)


def _as_open(flags: int) -> int:
    """Say the flags of pwritev in those of open."""
    said = 0
    for name, meaning in (("RWF_DSYNC", os.O_DSYNC), ("RWF_SYNC", os.O_SYNC), ("RWF_APPEND", os.O_APPEND)):
        if flags & getattr(os, name, 0):
            said |= meaning
    return said


def ftruncate(recorder: Recorder, fd: int, length: int) -> None:
    recorder.make(lambda: _resized(recorder, fd, length), lambda: real["ftruncate"](fd, length))


def truncate(recorder: Recorder, path: Any, length: int) -> None:
    recorder.make(lambda: _resized(recorder, path, length), lambda: real["truncate"](path, length))


def posix_fallocate(recorder: Recorder, fd: int, offset: int, length: int, /) -> None:
    def look() -> Op | None:
        return Allocate(recorder.log.node(_fstat(fd), fd), offset + length, causing_line())

    recorder.make(look, lambda: real["posix_fallocate"](fd, offset, length))


def _resized(recorder: Recorder, file: Any, length: int) -> Op | None:
    there = _found(file, None, follow_symlinks=True)
    if there is None or not stat.S_ISREG(there.st_mode):
        return None
    return Truncate(recorder.log.node(there, file), length, causing_line())


# The disk


def fsync(recorder: Recorder, fd: Any) -> None:
    _syncing(recorder, fd, "fsync")


def fdatasync(recorder: Recorder, fd: Any) -> None:
    _syncing(recorder, fd, "fdatasync")


def _syncing(recorder: Recorder, fd: Any, kind: str) -> None:
    number = fd if isinstance(fd, int) else fd.fileno()

    def look() -> Op | None:
        there = _found(number, None, follow_symlinks=True)
        if there is None or not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
            return None
        return Fsync(recorder.log.node(there, number), kind == "fdatasync", where=causing_line())

    def call() -> None:
        try:
            real[kind](number)
        except OSError as error:
            op = look()
            if error.errno in _LOST and op is not None:
                recorder.failed(op)
            raise

    recorder.make(look, call, kind=kind)


def sync(recorder: Recorder) -> None:
    recorder.make(lambda: Sync(causing_line()), real["sync"])


# Processes


def fork_exec(recorder: Recorder, *args: Any) -> Any:
    recorder.started_child("subprocess or multiprocessing")
    return real_fork_exec(*args)


AUDITED: dict[str, Watch] = {
    "open": open_fd,
    "mkdir": mkdir,
    "symlink": symlink,
    "link": link,
    "unlink": unlink,
    "remove": unlink,
    "rmdir": rmdir,
    "rename": rename,
    "replace": rename,
    "ftruncate": ftruncate,
    "truncate": truncate,
}
UNAUDITED: dict[str, Watch] = {
    "write": write,
    "pwrite": pwrite,
    "writev": writev,
    "pwritev": pwritev,
    "sendfile": sendfile,
    "copy_file_range": copy_file_range,
    "splice": splice,
    "posix_fallocate": posix_fallocate,
    "fsync": fsync,
    "fdatasync": fdatasync,
    "sync": sync,
}
