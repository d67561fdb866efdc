"""The recorder: everything that Python code does to files while a block runs, in the order in which the kernel saw it.

It stands in for `open`, `FileIO` and the file calls of `os`, wherever a loaded module keeps a reference to one. What
it cannot see, it notices: by an audit hook, by the threads that are left, and by comparing the folder at the end with
what the recorded ops make of the folder at the start. Whatever it noticed is a reason not to trust the trace.
"""

from __future__ import annotations

import builtins
import dataclasses
import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.record import audit, file_io, os_calls, thread_lines
from pytest_wfstate.faults.record.active import active, audited_stand_in, stand_in
from pytest_wfstate.faults.record.rebind import Rebinding
from pytest_wfstate.faults.record.verify import Gone, unexplained_content, unexplained_sizes
from pytest_wfstate.faults.source import causing_line
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import (
    Allocate,
    Create,
    Fsync,
    Link,
    Node,
    Op,
    Rename,
    Sync,
    Trace,
    Truncate,
    Unlink,
    Write,
)

__all__ = ["AlreadyRecording", "Gate", "Intent", "Recorder"]

T = TypeVar("T")

_KINDS = {Link: "link", Rename: "rename", Unlink: "unlink", Truncate: "truncate", Allocate: "allocate", Sync: "sync"}
_CREATED = {"file": "create", "folder": "mkdir", "symlink": "symlink"}

# The real calls: those in `os` are replaced.
_fstat, _lseek, _pread, _open_fd, _close = os.fstat, os.lseek, os.pread, os.open, os.close

_rebinding = Rebinding()  # what it has learned about loaded modules serves every recorder
_entering = threading.Lock()


class AlreadyRecording(WfstateError, RuntimeError):
    """A recorder is on in this process, and there can be only one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """An op that is about to be done."""

    kind: str
    """create, write, truncate, allocate, fsync, fdatasync, rename, unlink, mkdir, rmdir, link, symlink or sync."""
    path: str
    """Where, relative to home, which is "."; of a rename the old path. Empty for what is not below home."""
    new_path: str = ""
    """Of a rename."""
    size: int = 0
    """How many bytes a write has."""


class Gate(Protocol):
    """Somebody who decides over each op on files below home before it happens, and is told afterwards."""

    def before(self, intent: Intent, /) -> int | None:
        """Let it happen, raise OSError to have it fail, or die. A number cuts a write to so many bytes."""

    def after(self, *ops: Op) -> None:
        """Hear what has happened: one op, or a write and the fsync that its descriptor implies."""


class Recorder:
    """Records what happens to files below `home`, and outside of it as far as it may come to matter, in a block.

    With `children="readonly"` child processes are trusted to write nothing.

    Raises:
        AlreadyRecording: another recorder is on.
    """

    def __init__(self, home: Path, gate: Gate | None = None, children: str = "forbid") -> None:
        if children not in ("forbid", "readonly"):
            raise ValueError(
                f"children is {children!r}. It is 'forbid' or 'readonly' (they may run, and write nothing)."
            )
        self.home = Path(os.path.realpath(home))
        self.gate = gate
        self.sees_sqlite = False
        """Set by whoever has SQLite recorded into the same log."""
        self._children = children
        self._trace: Trace | None = None
        self._leaving: os.stat_result | None = None
        self._gone: list[Gone] = []
        self._readers: dict[Node, int] = {}

    def __enter__(self) -> Self:
        with _entering:
            if active.recorder is not None:
                raise AlreadyRecording(
                    f"a recorder of {active.recorder.home} is on, and there can be only one in a process. "
                    f"{self.home} was to be recorded. Leave the first before you enter another."
                )
            self.log = Log(self.home)
            self.work = thread_lines.Work()
            self._began = time.clock_gettime_ns(time.CLOCK_REALTIME)
            audit.add_hook()
            try:
                _rebinding.do(_rebinding.find([*_PAIRS, *thread_lines.pairs()]), sys._getframe(1))
                thread_lines.follow_threads()
                active.recorder = self
            except BaseException:
                self._leave()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._leave()
        for reason in self.work.unfinished():
            self.log.cannot_see(reason)
        self._trace = self.log.trace()
        for reason in self._unexplained():
            self.log.cannot_see(reason)
        for fd in self._readers.values():
            _close(fd)

    @property
    def unmeasured(self) -> list[str]:
        """Reasons why the trace proves nothing. Complete after the block."""
        return self.log.unmeasured

    def trace(self) -> Trace:
        """Give what happened. It is there after the block."""
        if self._trace is None:
            raise RuntimeError("the recorder is still on, or was never on. Ask for the trace after its block.")
        return self._trace

    def sqlite_opened(self, path: str) -> None:
        """Hear that SQLite opens a file below home."""
        if not self.sees_sqlite:
            self.log.cannot_see(f"SQLite writes {path} from native code, and nobody was there to see it.")

    # What the stand-ins call.

    def make(
        self,
        look: Callable[[], Op | None],
        call: Callable[[], T],
        settle: Callable[[Any, T], Op] | None = None,
        kind: str = "",
    ) -> T:
        """Make a real call, and log the op that it is.

        `look` tells beforehand what op the call will be, or None if it will fail or change nothing; `settle` completes
        it by what the call gave. It is looked at twice if there is a gate, which must not be asked under the lock.
        """
        asked = self.gate is not None and self._ask(look(), kind)
        with self.log.lock:
            op = look()
            result = call()
            if op is not None:
                op = op if settle is None else settle(op, result)
                self._log(op)
        if asked and op is not None and self.gate is not None:
            self.gate.after(op)
        return result

    def write(
        self,
        fd: int,
        size: Callable[[], int],
        call: Callable[[int | None], Any],
        taken: Callable[[int, int], bytes],
        at: int | None,
        flags: int,
    ) -> Any:
        """Make a real call that writes, cut to a number of bytes if the gate says so, and log what the kernel took."""
        found = _fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return call(None)  # without the lock: a pipe may wait here for whoever reads it
        log = self.log
        flags |= fcntl.fcntl(fd, fcntl.F_GETFL)
        limit, asked = self._ask_write(found, fd, size, flags) if self.gate is not None else (None, False)
        ops: list[Op] = []
        with log.lock:
            node = log.node(found, fd)
            written = call(limit)
            if written:
                if at is None:
                    offset = _lseek(fd, 0, os.SEEK_CUR) - written
                else:  # Linux appends even then (pwrite(2), Bugs)
                    offset = _fstat(fd).st_size - written if flags & os.O_APPEND else at
                where = causing_line()
                ops.append(Write(node, offset, taken(offset, written), where))
                if flags & (os.O_SYNC | os.O_DSYNC):  # on Linux, O_DSYNC is one of the two bits of O_SYNC
                    ops.append(Fsync(node, flags & os.O_SYNC != os.O_SYNC, where=where))
                log.items += ops
        if asked and ops and self.gate is not None:
            self.gate.after(*ops)
        return written

    def failed(self, op: Op) -> None:
        """Log an fsync that failed: what was written before it will never be on the disk."""
        if isinstance(op, Fsync):
            self.log.add(dataclasses.replace(op, failed=True))

    def arriving(self, found: os.stat_result, source: Any, folder: Node) -> Node:
        """Give the node of what is about to get a name in a folder, and know what it holds if that is below home."""
        if self.log.path(folder) is None:
            return self.log.node(found, source)
        if stat.S_ISREG(found.st_mode):
            self._written_unseen(os.fsdecode(source), found)
        node = self.log.node(found, source)
        if stat.S_ISDIR(found.st_mode) and self.log.path(node) is None:
            for parent, _, names in os.walk(source):
                for path in (os.path.join(parent, name) for name in names):
                    self._written_unseen(path, os.lstat(path))
            self.log.arrives(source, node)
        return node

    def _written_unseen(self, path: str, found: os.stat_result) -> None:
        if not self.log.knows(found) and found.st_mtime_ns > self._began:
            self.log.cannot_see(
                f"{path} was moved or linked below home after something wrote to it that the recorder could not see."
            )

    def leaving(self, found: os.stat_result, source: Any) -> Node:
        """Give the node of what is about to lose its name."""
        node = self.log.node(found, source)
        self._leaving = found
        return node

    def made_unnamed(self, folder: Any, dir_fd: int | None) -> None:
        """Hear that a file without a name is made in a folder."""
        path = self.path_below(audit.place(folder, -1 if dir_fd is None else dir_fd, follow=True))
        if path is not None:
            self.log.cannot_see(f"A file without a name was made in {path} by O_TMPFILE: it cannot be followed.")

    def started_child(self, call: str) -> None:
        """Hear that another process is started."""
        if self._children == "forbid":
            self.log.cannot_see(
                f"A child process was started (by {call}), whose file operations cannot be seen. "
                'If it writes nothing below home, say so by children="readonly".'
            )

    def path_below(self, place: str) -> str | None:
        """Give an absolute path as one relative to home, or None if it is not below home."""
        home = str(self.home)
        if place == home:
            return "."
        return place.removeprefix(home + "/") if place.startswith(home + "/") else None

    def read_back(self, fd: int, offset: int, size: int) -> bytes:
        """Read what has just come into a file from a pipe."""
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            fd = self._reader(fd)
        return _pread(fd, size, offset)

    def _reader(self, fd: int) -> int:
        """Give a descriptor to read a file by; to close it at once would drop the locks of its owner (fcntl(2))."""
        node = self.log.node(_fstat(fd), fd)
        if node not in self._readers:
            self._readers[node] = _open_fd(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        return self._readers[node]

    # What is behind that.

    def _leave(self) -> None:
        with self.log.lock:  # let an op that is under way come to its end
            active.turn_off()
        thread_lines.leave_threads()
        _rebinding.undo()

    def _ask(self, op: Op | None, kind: str) -> bool:
        intent = None if op is None else self._intent(op, kind)
        if op is None or intent is None:
            return False
        assert self.gate is not None
        try:
            self.gate.before(intent)
        except OSError:
            self.failed(op)
            raise
        return True

    def _ask_write(
        self, found: os.stat_result, fd: int, size: Callable[[], int], flags: int
    ) -> tuple[int | None, bool]:
        assert self.gate is not None
        with self.log.lock:
            path = self.log.path(self.log.node(found, fd))
        length = size()
        if path is None or not length or flags & os.O_ACCMODE == os.O_RDONLY:
            return None, False
        return self.gate.before(Intent("write", path, size=length)), True

    def _intent(self, op: Op, kind: str) -> Intent | None:
        """Say in words what an op will be; None if it is not below home."""
        new_path: str | None = None
        with self.log.lock:
            match op:
                case Sync():
                    path: str | None = "."
                case Rename():
                    path = self.log.path_of(op.folder, op.name)
                    new_path = self.log.path_of(op.new_folder, op.new_name)
                case Create() | Link() | Unlink():
                    path = self.log.path_of(op.folder, op.name)
                case _:
                    path = self.log.path(op.node)
        if path is None and new_path is None:
            return None
        said = kind or (_CREATED[op.kind] if isinstance(op, Create) else _KINDS[type(op)])
        return Intent(said, path or "", new_path or "")

    def _log(self, op: Op) -> None:
        self.log.add(op)
        gone = op.node if isinstance(op, Unlink) else op.replaced if isinstance(op, Rename) else None
        found = self._leaving
        if gone is None or found is None or (found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode)):
            return
        self.log.died(gone)
        if stat.S_ISREG(found.st_mode):
            self._gone.append(Gone(len(self.log.items), gone, found.st_size))

    def _unexplained(self) -> Iterator[str]:
        """Say where the disk is not what the recorded ops make of it."""
        assert self._trace is not None
        yield from unexplained_content(self._trace, self.home, self._is_rebuilt)
        yield from unexplained_sizes(self.log, [gone for gone in self._gone if not self._was_rebuilt(gone)])

    def _is_rebuilt(self, path: str) -> bool:
        """Tell whether SQLite keeps something there that it makes anew after a crash, and that is not recorded."""
        if not self.sees_sqlite:
            return False
        from pytest_wfstate.faults.record.sqlite_vfs import is_rebuilt

        return is_rebuilt(str(self.home / path))

    def _was_rebuilt(self, gone: Gone) -> bool:
        return self.sees_sqlite and (self.log.path(gone.node) or "").endswith("-shm")


_PAIRS: list[tuple[Any, Any]] = [
    *((os_calls.real[name], audited_stand_in(os_calls.real[name], watch)) for name, watch in os_calls.AUDITED.items()),
    *(
        (os_calls.real[name], stand_in(os_calls.real[name], watch))
        for name, watch in os_calls.UNAUDITED.items()
        if name in os_calls.real
    ),
    (os_calls.real_fork_exec, stand_in(os_calls.real_fork_exec, os_calls.fork_exec)),
    (builtins.open, stand_in(builtins.open, file_io.open_file)),
    (file_io.RealFileIO, file_io.FileIO),
]
