"""What each file call of `os` does to a disk, found out just before the real call is made.

Each function here takes the recorder and then what its namesake in `os` takes. It makes the real call through the
recorder, which logs the op. A call that will fail, or that changes nothing, is not an op.
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

from pytest_wfstate.faults.record import quiet_calls
from pytest_wfstate.faults.record.active import Watch
from pytest_wfstate.faults.record.file_call import FileCall, WriteCall
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.ops import Allocate, Create, Fsync, Kind, Link, Op, Rename, Sync, Truncate, Unlink

if TYPE_CHECKING:
    from pytest_wfstate.faults.record.recorder import Recorder

T = TypeVar("T")

CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TMPFILE = getattr(os, "O_TMPFILE", -1)
_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # after such an fsync the pages count as clean

real = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
"""The real calls, by name, from before anything replaced them."""

real_fork_exec = _posixsubprocess.fork_exec
_stat, _fstat, _lseek, _pread = os.stat, os.fstat, os.lseek, os.pread


# Names


def open_fd(recorder: Recorder, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
    def make() -> Any:
        return real["open"](path, flags, mode, dir_fd=dir_fd)

    return opening(recorder, path, flags, dir_fd, make, int) if flags & CHANGING else make()


def opening(
    recorder: Recorder,
    path: Any,
    flags: int,
    dir_fd: int | None,
    make: Callable[[], T],
    fileno: Callable[[T], int],
) -> T:
    """Make a call that opens a file for writing, which may create or empty it."""

    def status() -> os.stat_result | None:
        return _status(path, dir_fd, follow_symlinks=not flags & os.O_NOFOLLOW)

    def expected() -> Op | None:
        existing = status()
        if existing is None:
            return _creating(recorder, path, dir_fd, "file") if flags & os.O_CREAT else None
        node = recorder.log.node(existing, _full(path, dir_fd))
        if flags & os.O_TRUNC and not flags & os.O_EXCL and existing.st_size:
            return Truncate(node, 0, causing_line())
        return None

    def completed(op: Op, opened: T) -> Op:
        return _created(recorder, op, _fstat(fileno(opened)))

    def make_settled() -> T:
        opened = make()
        if flags & os.O_TRUNC:  # even an empty file has changed then
            recorder.log.settled(_fstat(fileno(opened)))
        return opened

    if flags & _TMPFILE == _TMPFILE:
        recorder.opened_unnamed(path, dir_fd)
        return make()
    existing = status()
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        return make()  # without the lock: a pipe blocks here until its other end is opened
    return recorder.make(FileCall(expected, make_settled, completed))


def mkdir(recorder: Recorder, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    recorder.make(
        FileCall(
            expected=lambda: _creating(recorder, path, dir_fd, "folder"),
            make=lambda: real["mkdir"](path, mode, dir_fd=dir_fd),
            completed=lambda op, _: _created(recorder, op, _stat(path, dir_fd=dir_fd, follow_symlinks=False)),
        )
    )


def symlink(
    recorder: Recorder, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
) -> None:
    recorder.make(
        FileCall(
            expected=lambda: _creating(recorder, dst, dir_fd, "symlink", os.fsdecode(src)),
            make=lambda: real["symlink"](src, dst, target_is_directory, dir_fd=dir_fd),
            completed=lambda op, _: _created(recorder, op, _stat(dst, dir_fd=dir_fd, follow_symlinks=False)),
        )
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
    def expected() -> Op | None:
        # Whether a link to a symlink links the symlink or its target depends on the system: `completed` looks.
        source = _status(src, src_dir_fd, follow_symlinks=False)
        entry = _entry(recorder, dst, dst_dir_fd)
        if source is None or entry is None or _status(dst, dst_dir_fd, follow_symlinks=False) is not None:
            return None
        node = recorder.arriving(source, _full(src, src_dir_fd), entry[0])
        return Link(*entry, node, causing_line())

    def completed(op: Link, _: None) -> Op:
        linked = _stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False)
        return dataclasses.replace(op, node=recorder.arriving(linked, _full(dst, dst_dir_fd), op.folder))

    def make() -> None:
        real["link"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    recorder.make(FileCall(expected, make, completed))


def unlink(recorder: Recorder, path: Any, *, dir_fd: int | None = None) -> None:
    recorder.make(
        FileCall(
            expected=lambda: _removing(recorder, path, dir_fd, folder=False),
            make=lambda: real["unlink"](path, dir_fd=dir_fd),
        )
    )


def rmdir(recorder: Recorder, path: Any, *, dir_fd: int | None = None) -> None:
    recorder.make(
        FileCall(
            expected=lambda: _removing(recorder, path, dir_fd, folder=True),
            make=lambda: real["rmdir"](path, dir_fd=dir_fd),
            kind="rmdir",
        )
    )


def rename(
    recorder: Recorder, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    def expected() -> Op | None:
        old, new = _entry(recorder, src, src_dir_fd), _entry(recorder, dst, dst_dir_fd)
        source = _status(src, src_dir_fd, follow_symlinks=False)
        if old is None or new is None or source is None:
            return None
        node = recorder.arriving(source, _full(src, src_dir_fd), new[0])
        target = _status(dst, dst_dir_fd, follow_symlinks=False)
        replaced = None if target is None else recorder.leaving(target, _full(dst, dst_dir_fd))
        if node == replaced:
            return None  # two names of one file: rename(2) does nothing
        return Rename(*old, *new, node, replaced, causing_line())

    recorder.make(FileCall(expected, lambda: real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)))


def _creating(recorder: Recorder, path: Any, dir_fd: int | None, kind: Kind, target: str = "") -> Op | None:
    existing = _status(path, dir_fd, follow_symlinks=False)
    if existing is not None and kind != "file":
        return None
    if existing is not None:  # a dangling symlink: its target will be created
        path, dir_fd = os.path.realpath(_full(path, dir_fd)), None
    entry = _entry(recorder, path, dir_fd)
    return None if entry is None else Create(*entry, -1, kind, target, causing_line())


def _created(recorder: Recorder, op: Op, status: os.stat_result) -> Op:
    return dataclasses.replace(op, node=recorder.log.new_node(status)) if isinstance(op, Create) else op


def _removing(recorder: Recorder, path: Any, dir_fd: int | None, *, folder: bool) -> Op | None:
    status = _status(path, dir_fd, follow_symlinks=False)
    entry = _entry(recorder, path, dir_fd)
    if status is None or entry is None or stat.S_ISDIR(status.st_mode) != folder:
        return None
    if folder and recorder.gate is not None and real["listdir"](_full(path, dir_fd)):
        return None
    return Unlink(*entry, recorder.leaving(status, _full(path, dir_fd)), causing_line())


def _entry(recorder: Recorder, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
    try:
        return recorder.log.entry(path, dir_fd)
    except (OSError, TypeError, ValueError):
        return None


def _status(path: Any, dir_fd: int | None, *, follow_symlinks: bool) -> os.stat_result | None:
    try:
        return _stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    except (OSError, TypeError, ValueError):
        return None


def _full(path: Any, dir_fd: int | None) -> Any:
    return path if dir_fd is None else os.path.join(f"/proc/self/fd/{dir_fd}", os.fsdecode(path))


# Content


@dataclasses.dataclass(slots=True, kw_only=True)
class BufferWrite(WriteCall):
    """A write of bytes that the caller holds."""

    data: Any
    real: Callable[[Any], Any]

    def size(self) -> int:
        return memoryview(self.data).nbytes

    def make(self, limit: int | None) -> Any:
        return self.real(self.data if limit is None else memoryview(self.data).cast("B")[:limit])

    def taken(self, offset: int, size: int) -> bytes:  # noqa: ARG002
        whole = self.data if type(self.data) is bytes else bytes(memoryview(self.data))
        return whole[:size]


def write(recorder: Recorder, fd: int, data: Any, /) -> Any:
    return recorder.write(BufferWrite(fd=fd, data=data, real=lambda data: real["write"](fd, data)))


def pwrite(recorder: Recorder, fd: int, data: Any, offset: int, /) -> Any:
    call = BufferWrite(fd=fd, data=data, real=lambda data: real["pwrite"](fd, data, offset), offset=offset)
    return recorder.write(call)


def writev(recorder: Recorder, fd: int, buffers: Sequence[Any], /) -> Any:
    return recorder.write(BufferWrite(fd=fd, data=b"".join(buffers), real=lambda data: real["writev"](fd, [data])))


def pwritev(recorder: Recorder, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0, /) -> Any:
    def make(data: Any) -> Any:
        return real["pwritev"](fd, [data], offset, flags)

    call = BufferWrite(fd=fd, data=b"".join(buffers), real=make, offset=offset, flags=_open_flags(flags))
    return recorder.write(call)


def _open_flags(flags: int) -> int:
    """Translate flags of pwritev into those of open."""
    translated = 0
    for name, meaning in (("RWF_DSYNC", os.O_DSYNC), ("RWF_SYNC", os.O_SYNC), ("RWF_APPEND", os.O_APPEND)):
        if flags & getattr(os, name, 0):
            translated |= meaning
    return translated


@dataclasses.dataclass(slots=True, kw_only=True)
class CopyWrite(WriteCall):
    """A copy inside the kernel, from a file or a pipe."""

    recorder: Recorder
    source: int
    source_offset: int | None
    from_file: bool
    count: int
    real: Callable[[int], Any]

    def size(self) -> int:
        return self.count

    def make(self, limit: int | None) -> Any:
        return self.real(self.count if limit is None else limit)

    def taken(self, offset: int, size: int) -> bytes:
        if not self.from_file:
            return self.recorder.read_back(self.fd, offset, size)
        start = _lseek(self.source, 0, os.SEEK_CUR) - size if self.source_offset is None else self.source_offset
        return _pread(self.source, size, start)


def sendfile(recorder: Recorder, out_fd: int, in_fd: int, offset: int | None, count: int) -> Any:
    def make(size: int) -> Any:
        return real["sendfile"](out_fd, in_fd, offset, size)

    return _copying(recorder, in_fd, offset, out_fd, None, count, make)


def copy_file_range(
    recorder: Recorder, src: int, dst: int, count: int, offset_src: int | None = None, offset_dst: int | None = None
) -> Any:
    def make(size: int) -> Any:
        return real["copy_file_range"](src, dst, size, offset_src, offset_dst)

    return _copying(recorder, src, offset_src, dst, offset_dst, count, make)


def splice(
    recorder: Recorder,
    src: int,
    dst: int,
    count: int,
    offset_src: int | None = None,
    offset_dst: int | None = None,
    flags: int = 0,
) -> Any:
    def make(size: int) -> Any:
        return real["splice"](src, dst, size, offset_src, offset_dst, flags)

    return _copying(recorder, src, offset_src, dst, offset_dst, count, make)


def _copying(
    recorder: Recorder,
    src: int,
    offset_src: int | None,
    dst: int,
    offset_dst: int | None,
    count: int,
    make: Callable[[int], Any],
) -> Any:
    from_file = stat.S_ISREG(_fstat(src).st_mode)
    if from_file and recorder.injects_errors:
        quiet_calls.reading(recorder, src)
    if not from_file and stat.S_ISREG(_fstat(dst).st_mode):
        waiting = select.poll()  # select takes no descriptor above 1,023
        waiting.register(src, select.POLLIN)
        waiting.poll()  # without the lock: the writer of the pipe may need it
    return recorder.write(
        CopyWrite(
            fd=dst,
            offset=offset_dst,
            recorder=recorder,
            source=src,
            source_offset=offset_src,
            from_file=from_file,
            count=count,
            real=make,
        )
    )


def ftruncate(recorder: Recorder, fd: int, length: int) -> None:
    recorder.make(FileCall(lambda: _resizing(recorder, fd, length), lambda: real["ftruncate"](fd, length)))


def truncate(recorder: Recorder, path: Any, length: int) -> None:
    recorder.make(FileCall(lambda: _resizing(recorder, path, length), lambda: real["truncate"](path, length)))


def posix_fallocate(recorder: Recorder, fd: int, offset: int, length: int, /) -> None:
    def expected() -> Op | None:
        return Allocate(recorder.log.node(_fstat(fd), fd), offset + length, causing_line())

    recorder.make(FileCall(expected, lambda: real["posix_fallocate"](fd, offset, length)))


def _resizing(recorder: Recorder, file: Any, length: int) -> Op | None:
    status = _status(file, None, follow_symlinks=True)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Truncate(recorder.log.node(status, file), length, causing_line())


# Attributes


def _touching(name: str) -> Watch:
    """Return what makes a call that changes attributes of a file: its content stays, its ctime does not."""
    follows = name not in ("lchmod", "lchown")

    def watch(recorder: Recorder, path: Any, *args: Any, **kwargs: Any) -> Any:
        def status() -> os.stat_result | None:
            return _status(path, kwargs.get("dir_fd"), follow_symlinks=kwargs.get("follow_symlinks", follows))

        if name == "setxattr" and recorder.injects_errors and (now := status()) is not None:
            quiet_calls.ask(recorder, name, now, path, room="needs")
        with recorder.log.lock:
            before = status()
            if before is not None and recorder.log.knows(before):
                recorder.log.node(before, None)
            result = real[name](path, *args, **kwargs)
            after = status()
            if after is not None:
                recorder.log.settled(after)
        return result

    return watch


# The disk


def fsync(recorder: Recorder, fd: Any) -> None:
    _syncing(recorder, fd, "fsync")


def fdatasync(recorder: Recorder, fd: Any) -> None:
    _syncing(recorder, fd, "fdatasync")


def _syncing(recorder: Recorder, fd: Any, kind: str) -> None:
    number = fd if isinstance(fd, int) else fd.fileno()

    def expected() -> Op | None:
        status = _status(number, None, follow_symlinks=True)
        if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return None
        return Fsync(recorder.log.node(status, number), kind == "fdatasync", where=causing_line())

    def make() -> None:
        try:
            real[kind](number)
        except OSError as error:
            op = expected()
            if error.errno in _LOST and op is not None:
                recorder.failed(op)
            raise

    recorder.make(FileCall(expected, make, kind=kind))


def sync(recorder: Recorder) -> None:
    recorder.make(FileCall(lambda: Sync(causing_line()), real["sync"]))


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
TOUCHING: dict[str, Watch] = {
    name: _touching(name)
    for name in (
        *("chmod", "fchmod", "lchmod", "chown", "fchown", "lchown", "utime"),
        *("setxattr", "removexattr"),
    )
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
