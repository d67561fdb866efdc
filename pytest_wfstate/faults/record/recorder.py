"""The recorder: everything that Python code and SQLite do to files while a block runs, in the order the kernel saw it.

It replaces `open`, `FileIO` and the file calls of `os` wherever a loaded module holds a reference to one, and wraps
the VFS of SQLite. What it cannot record, it detects: by an audit hook, by threads that are still running, and by
comparing the folder at the end with what the recorded ops make of the folder at the start. Everything detected is a
reason not to trust the trace.
"""

from __future__ import annotations

import builtins
import dataclasses
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.bounds import CHILDREN, Children
from pytest_wfstate.faults.record import audit, file_io, os_calls, quiet_calls, task_starts, thread_lines
from pytest_wfstate.faults.record.active import Watch, active, audited_stand_in, stand_in
from pytest_wfstate.faults.record.blocked import is_running
from pytest_wfstate.faults.record.file_call import FileCall, WriteCall
from pytest_wfstate.faults.record.gate import Gate, Intent, Room
from pytest_wfstate.faults.record.rebind import FoundReferences, Rebinding
from pytest_wfstate.faults.record.sqlite_vfs import is_rebuilt, watch_sqlite
from pytest_wfstate.faults.record.turns import RankedTurns, turns_for
from pytest_wfstate.faults.record.verify import RemovedFile, unexplained_changes, unexplained_content, unexplained_sizes
from pytest_wfstate.faults.source_lines import causing_line
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

T = TypeVar("T")

_KINDS = {Link: "link", Rename: "rename", Unlink: "unlink", Truncate: "truncate", Allocate: "allocate", Sync: "sync"}
_CREATED = {"file": "create", "folder": "mkdir", "symlink": "symlink"}

# The real calls: those in `os` are replaced.
_fstat, _lseek, _pread, _open_fd, _close = os.fstat, os.lseek, os.pread, os.open, os.close

# Shared by all recorders: scanning the loaded modules is slow. One is for gates that are asked about reads, too.
_rebindings = {False: Rebinding(), True: Rebinding()}
_entering = threading.Lock()


class AlreadyRecording(WfstateError, RuntimeError, public=False):
    """Another recorder is active in this process, and there can be only one."""


class Recorder:
    """Records in a block what happens to files below `home`, and to files outside that may be moved there.

    `gate` is asked about each op below home. With `children="readonly"` child processes are trusted to write nothing.
    `known` keeps what was found for the next recorder of the same exploration.
    `order` says in which order threads and tasks have their turns; without it they run as they like.

    Raises:
        AlreadyRecording: another recorder is active.
    """

    def __init__(
        self,
        home: Path,
        gate: Gate | None = None,
        children: Children = "forbid",
        known: FoundReferences | None = None,
        order: str = "",
    ) -> None:
        if children not in CHILDREN:
            raise ValueError(
                f"children={children!r} is unknown. Pass 'forbid', or 'readonly' if child processes write nothing."
            )
        self.home = Path(os.path.realpath(home))
        self.gate = gate
        self.injects_errors = gate is not None and gate.injects_errors
        self._rebinding = _rebindings[self.injects_errors]
        self._children = children
        self._known = known
        self._order = order
        self.turns: RankedTurns | None = None
        self._trace: Trace | None = None
        self._leaving: os.stat_result | None = None
        self._removed: list[RemovedFile] = []
        self._readers: dict[Node, int] = {}
        self._sees_sqlite = False

    def __enter__(self) -> Self:
        with _entering:
            if active.recorder is not None:
                raise AlreadyRecording(
                    f"Cannot record {self.home}: {active.recorder.home} is being recorded, and a process can have only "
                    "one recorder. Leave the first recorder before you enter another."
                )
            self.log = Log(self.home)
            self.work = thread_lines.Work(self.log.strands)
            self.turns = self.log.strands.turns = turns_for(self.log.strands, self._order)
            self._began = time.clock_gettime_ns(time.CLOCK_REALTIME)
            self._sqlite = watch_sqlite(self.log, self.gate)
            audit.add_hook()
            try:
                pairs, silent = (_PAIRS_OF_ERRORS, _SILENT_OF_ERRORS) if self.injects_errors else (PAIRS, _SILENT)
                references = self._rebinding.find([*pairs, *thread_lines.pairs()], silent, self._known)
                for reason in references.unseen:
                    self.log.cannot_see(reason)
                self._rebinding.do(references)
                thread_lines.follow_threads()
                task_starts.follow_tasks()
                active.recorder = self
                if self.turns is not None:
                    self.turns.on()
                self._sees_sqlite = self._sqlite.__enter__()
            except BaseException:
                self._leave()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._sqlite.__exit__(kind, error, tb)
        finally:
            self._leave()
            for reason in self.work.unfinished():
                self.log.cannot_see(reason)
            self._trace = self.log.trace()
            for reason in self._unexplained():
                self.log.cannot_see(reason)
            for fd in self._readers.values():
                _close(fd)

    @property
    def keeps_order(self) -> bool:
        """Whether threads and tasks had their turns in the order that was asked for."""
        return self.turns is None or self.turns.are_kept

    def is_busy(self) -> bool:
        """Whether another thread of the code under test is running or waits for its turn."""
        return any(strand.is_held or is_running(thread) for thread, strand in self.log.strands.others())

    @property
    def unmeasured(self) -> list[str]:
        """Reasons why the trace proves nothing. Complete after the block."""
        return self.log.unmeasured

    def trace(self) -> Trace:
        """Return what happened. Call it after the block."""
        if self._trace is None:
            raise RuntimeError("The trace is not available: the recorder is still active, or was never entered.")
        return self._trace

    # What the stand-ins call.

    def make(self, call: FileCall[T]) -> T:
        """Make a real call, and log its op.

        With a gate, the op is looked up twice: the gate must not be asked under the lock.
        """
        self.log.strands.at_item()
        asked = self.gate is not None and self._ask(call.expected(), call.kind)
        with self.log.lock:
            op = call.expected()
            with self.log.making():
                result = call.make()
                if op is not None:
                    if call.completed is not None:
                        op = call.completed(op, result)
                    self._log(op)
        if asked and op is not None and self.gate is not None:
            self.gate.after(op)
        return result

    def write(self, call: WriteCall) -> Any:
        """Make a real call that writes, cut short if the gate says so, and log what the kernel took."""
        fd, log = call.fd, self.log
        status = _fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return call.make(None)  # without the lock: a pipe may block here until it is read
        flags = call.flags | fcntl.fcntl(fd, fcntl.F_GETFL)
        log.strands.at_item()
        limit, asked = self._ask_write(status, call, flags) if self.gate is not None else (None, False)
        ops: list[Op] = []
        with log.lock:
            node = log.node(status, fd)
        with log.making():
            written = call.make(limit)
            if written:
                if call.offset is None:
                    offset = _lseek(fd, 0, os.SEEK_CUR) - written
                else:  # Linux appends even then (pwrite(2), Bugs)
                    offset = _fstat(fd).st_size - written if flags & os.O_APPEND else call.offset
                where = causing_line()
                ops.append(Write(node, offset, call.taken(offset, written), where))
                if flags & (os.O_SYNC | os.O_DSYNC):  # on Linux, O_DSYNC is one of the two bits of O_SYNC
                    span = (offset, offset + written)  # open(2): only what this call wrote
                    ops.append(Fsync(node, flags & os.O_SYNC != os.O_SYNC, where=where, span=span))
                for op in ops:
                    log.add(op)
                log.settled(_fstat(fd))
        if asked and ops and self.gate is not None:
            self.gate.after(*ops)
        return written

    def failed(self, op: Op) -> None:
        """Log an fsync that failed: what was written before it will never reach the disk."""
        if isinstance(op, Fsync):
            self.log.add(dataclasses.replace(op, failed=True))

    def arriving(self, status: os.stat_result, source: Any, folder: Node) -> Node:
        """Return the node of what is about to get a name in `folder`; if that is below home, learn its content."""
        if self.log.path(folder) is None:
            return self.log.node(status, source)
        if stat.S_ISREG(status.st_mode):
            self._written_unseen(os.fsdecode(source), status)
        node = self.log.node(status, source)
        if stat.S_ISDIR(status.st_mode) and self.log.path(node) is None:
            for parent, _, names in os.walk(source):
                for path in (os.path.join(parent, name) for name in names):
                    self._written_unseen(path, os.lstat(path))
            self.log.adopt_below(source, node)
        return node

    def _written_unseen(self, path: str, status: os.stat_result) -> None:
        if not self.log.knows(status) and status.st_mtime_ns > self._began:
            self.log.cannot_see(f"{path} was moved or linked below home after a write that could not be recorded.")

    def leaving(self, status: os.stat_result, source: Any) -> Node:
        """Return the node of what is about to lose its name."""
        self._leaving = status
        return self.log.node(status, source)

    def opened_unnamed(self, folder: Any, dir_fd: int | None) -> None:
        """Take note of a file opened by O_TMPFILE."""
        path = self.log.path_below(audit.absolute(folder, -1 if dir_fd is None else dir_fd, follow=True))
        if path is not None:
            self.log.cannot_see(f"O_TMPFILE opened a file without a name in {path}, which cannot be followed.")

    def opened_by_sqlite(self, path: str) -> None:
        """Take note of a database below home that SQLite opens."""
        if not self._sees_sqlite:
            self.log.cannot_see(
                f"SQLite writes {path} from native code, and the VFS of this interpreter's SQLite cannot be wrapped."
            )

    def started_child(self, call: str) -> None:
        """Take note of a new child process."""
        if self._children == "forbid":
            self.log.cannot_see(
                f"A child process was started (by {call}), whose file operations cannot be seen. "
                'If it writes nothing below home, pass children="readonly".'
            )

    def read_back(self, fd: int, offset: int, size: int) -> bytes:
        """Read what was just written to a file from a pipe."""
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            fd = self._reader(fd)
        return _pread(fd, size, offset)

    def _reader(self, fd: int) -> int:
        """Return a readable descriptor of a file. It stays open: closing it would drop its owner's locks (fcntl(2))."""
        node = self.log.node(_fstat(fd), fd)
        if node not in self._readers:
            self._readers[node] = _open_fd(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        return self._readers[node]

    def _leave(self) -> None:
        if self.turns is not None:
            self.turns.off()
        with self.log.lock:  # let an op that is under way finish
            active.turn_off()
        task_starts.leave_tasks()
        thread_lines.leave_threads()
        self._rebinding.undo()

    def _ask(self, op: Op | None, kind: str) -> bool:
        """Whether the gate was asked about an op, and lets it happen."""
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

    def _ask_write(self, status: os.stat_result, call: WriteCall, flags: int) -> tuple[int | None, bool]:
        assert self.gate is not None
        with self.log.lock:
            path = self.log.path(self.log.node(status, call.fd))
        size = call.size()
        if path is None or not size or flags & os.O_ACCMODE == os.O_RDONLY:
            return None, False
        offset = _lseek(call.fd, 0, os.SEEK_CUR) if call.offset is None else call.offset
        grows = bool(flags & os.O_APPEND) or offset + size > status.st_size
        return self.gate.before(Intent("write", path, size=size, room="needs" if grows else "same")), True

    def _intent(self, op: Op, kind: str) -> Intent | None:
        """Return what the gate is asked about an op, or None if the op is not below home."""
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
        kind = kind or (_CREATED[op.kind] if isinstance(op, Create) else _KINDS[type(op)])
        return Intent(kind, path or "", new_path or "", room=self._room(op))

    def _room(self, op: Op) -> Room:
        """Whether an op needs room on the disk or frees some, for a gate that wants to know."""
        if not self.injects_errors:
            return "same"
        match op:
            case Create() | Link():
                return "needs"
            case Unlink():
                return "frees"
            case Rename():
                return "same" if op.replaced is None else "frees"
            case Fsync():
                return "needs" if self.log.unflushed(op.node).grew else "same"
            case Truncate() | Allocate():
                size = len(self.log.unflushed(op.node).now)
                frees = isinstance(op, Truncate) and op.size < size
                return "frees" if frees else "needs" if op.size > size else "same"
        return "same"

    def _log(self, op: Op) -> None:
        self.log.add(op)
        node = op.node if isinstance(op, Unlink) else op.replaced if isinstance(op, Rename) else None
        status = self._leaving
        if node is None or status is None or (status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)):
            return
        self.log.lost_last_name(node)
        if stat.S_ISREG(status.st_mode):
            self._removed.append(RemovedFile(len(self.log.items), node, status.st_size))

    def _unexplained(self) -> Iterator[str]:
        """Find where the disk is not what the recorded ops make of it; the `-shm` files of SQLite never are."""
        assert self._trace is not None
        sees_sqlite = self._sees_sqlite
        yield from unexplained_content(
            self._trace, self.home, lambda path: sees_sqlite and is_rebuilt(str(self.home / path))
        )
        removed = [
            file for file in self._removed if not (sees_sqlite and (self.log.path(file.node) or "").endswith("-shm"))
        ]
        yield from unexplained_sizes(self.log, removed)
        if not self.log.unmeasured:
            yield from unexplained_changes(
                path
                for path in self.log.touched()
                if not (sees_sqlite and (path.endswith("-shm") or self.log.has_shm(path)))
            )


def _pairs(make: Callable[..., Any], watches: Mapping[str, Watch]) -> list[tuple[Any, Any]]:
    real = os_calls.real
    return [(real[name], make(real[name], watch)) for name, watch in watches.items() if name in real]


def _names(watches: Mapping[str, Watch]) -> dict[int, str]:
    return {id(os_calls.real[name]): f"os.{name}" for name in watches if name in os_calls.real}


PAIRS: list[tuple[Any, Any]] = [
    *_pairs(audited_stand_in, os_calls.AUDITED),
    *_pairs(stand_in, os_calls.UNAUDITED | os_calls.TOUCHING),
    (os_calls.real_fork_exec, stand_in(os_calls.real_fork_exec, os_calls.fork_exec)),
    (builtins.open, stand_in(builtins.open, file_io.open_file)),
    (file_io.RealFileIO, file_io.FileIO),
]
"""Each real call, and what stands in for it."""
_SILENT = _names(os_calls.UNAUDITED)
"""The real calls, by id, that raise no audit event."""
_PAIRS_OF_ERRORS = [*PAIRS, *_pairs(audited_stand_in, quiet_calls.AUDITED), *_pairs(stand_in, quiet_calls.UNAUDITED)]
"""The same if errors are injected."""
_SILENT_OF_ERRORS = _SILENT | _names(quiet_calls.UNAUDITED)
