"""What SQLite does to files, recorded through a wrapper of its default VFS, by ctypes and without a compiler.

SQLite calls the kernel from C, where nothing that Python could patch sees it. But it does so through two tables of
functions, the VFS and the methods of an open file (sqlite.org/vfs.html), and a copy of a table with some functions
replaced can be registered as another VFS. The wrapper is made once per process and never freed: a connection that was
opened while it recorded keeps using it.

Two things are inferred and not seen. Folder syncs happen inside the unix VFS: after the first sync of a journal, and
after an unlink that asks for it. And the mapped `-shm` file is not recorded: SQLite rebuilds it (`is_rebuilt`).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import itertools
import os
from collections.abc import Iterator
from ctypes import c_int64, c_void_p
from typing import Any

from pytest_wfstate.faults.record import sqlite_abi as abi
from pytest_wfstate.faults.record.gate import Gate, Intent, Room
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import Allocate, Fsync, Node, Truncate, Write

_NAME = b"wfstate"

# The real calls: a recorder replaces those in `os`.
_stat, _open, _close, _sync = os.stat, os.open, os.close, getattr(os, "fdatasync", os.fsync)


@contextlib.contextmanager
def watch_sqlite(log: Log, gate: Gate | None = None) -> Iterator[bool]:
    """Record in a block what every connection that `sqlite3` opens from now on does to files.

    Yields False, and records nothing, if the VFS of this interpreter's SQLite cannot be wrapped.
    """
    vfs = _wrapper()
    if vfs is None or not vfs.wraps_default():
        yield False
        return
    watch = _Watcher(log, gate)
    with vfs.watched_by(watch):
        yield True
    if watch.interrupted is not None:
        raise watch.interrupted


def is_rebuilt(path: str) -> bool:
    """Whether SQLite rebuilds a file from the database's WAL, so that it need not be recorded.

    The database itself is not read: closing it again would drop this process's locks on it (fcntl(2)).
    """
    return path.endswith("-shm") and os.path.isfile(path.removesuffix("-shm"))


@dataclasses.dataclass(slots=True)
class _OpenFile:
    """A file that SQLite has open. It may lose its name, so its first stat identifies it."""

    path: str
    status: os.stat_result
    owes_folder_sync: bool
    _log: Log | None = None
    _node: Node = 0

    def node_in(self, log: Log) -> Node:
        if self._log is not log:
            self._log, self._node = log, log.node(self.status, None)
        return self._node


class _Once:
    """A real call that is made once, whatever is raised around it."""

    __slots__ = ("_codes", "_real", "args")

    def __init__(self, real: abi.Function, args: tuple[Any, ...]) -> None:
        self.args = args
        self._real = real
        self._codes: list[int] = []

    def __call__(self) -> int:
        if not self._codes:
            # One step of the interpreter, so that a signal handler cannot separate the call from its result.
            self._codes.extend(itertools.starmap(self._real, (self.args,)))
        return self._codes[0]

    def cut(self, size: int) -> _Once:
        """Return this write with fewer bytes."""
        file, data, _, offset = self.args
        return _Once(self._real, (file, data, size, offset))


class _RefusedCall(_Once):
    """A call that is not made, because the gate refused it."""

    __slots__ = ()

    def __init__(self, code: int, args: tuple[Any, ...]) -> None:
        super().__init__(lambda *_: code, args)


class _Watcher:
    """A log, perhaps a gate, and the exception that interrupted SQLite, if any."""

    def __init__(self, log: Log, gate: Gate | None) -> None:
        self.log = log
        self.gate = gate
        self.interrupted: BaseException | None = None

    def observed(self, kind: str, path: str, observe: abi.Function, real: abi.Function, *args: Any) -> int:
        """Make a call of SQLite's through `observe`. If that raises, SQLite still gets the result of the real call.

        The gate is asked about calls that have a kind, without the lock: it may wait for another thread.
        """
        make = _Once(real, args)
        below = self.log.path_below(path) if kind and self.gate is not None else None
        gate = None if below is None else self.gate
        try:
            self.log.strands.at_item()
            granted = make if gate is None or below is None else self._ask(gate, kind, path, below, make)
            with self.log.making():
                code = observe(self, granted, *granted.args)
            if gate is not None and code == abi.OK and kind != "read":
                gate.after()
            return abi.FULL if code == abi.OK and granted is not make else code
        except BaseException as error:
            self.log.cannot_see(f"An op of SQLite was not recorded: {error!r}")
            if not isinstance(error, Exception):
                self.interrupted = error  # raised by a signal handler: it cannot pass through SQLite
            return make()

    def _ask(self, gate: Gate, kind: str, path: str, below: str, make: _Once) -> _Once:
        """Return the call as the gate allows it."""
        size = make.args[2] if kind == "write" else 0
        try:
            granted = gate.before(Intent(kind, below, size=size, room=self._room(gate, kind, path, make.args)))
        except OSError as error:
            is_full = kind == "write" and error.errno == errno.ENOSPC
            return _RefusedCall(abi.FULL if is_full else _REFUSED[kind], make.args)
        if granted is None or granted >= size:
            return make
        return make.cut(granted) if granted else _RefusedCall(abi.FULL, make.args)

    def _room(self, gate: Gate, kind: str, path: str, args: tuple[Any, ...]) -> Room:
        """Whether a call needs room on the disk or frees some, for a gate that wants to know."""
        status = _status(path)
        if kind == "create":
            return "needs"
        if kind == "unlink":
            return "frees"
        if status is None or kind == "read" or not gate.injects_errors:
            return "same"
        if kind == "fsync":
            with self.log.lock:
                return "needs" if self.log.unflushed(self.log.node(status, None)).grew else "same"
        if kind == "write":
            _, _, size, offset = args
            return "needs" if offset + size > status.st_size else "same"
        return "frees" if args[1] < status.st_size else "same"  # a truncate


_REFUSED = {
    "create": abi.CANTOPEN,
    "read": abi.IOERR_READ,
    "write": abi.IOERR_WRITE,
    "truncate": abi.IOERR_TRUNCATE,
    "fsync": abi.IOERR_FSYNC,
    "unlink": abi.IOERR_DELETE,
}


class _Vfs:
    """The wrapper of the default VFS."""

    def __init__(self, library: Any, address: int) -> None:
        self.watch: _Watcher | None = None
        self.files: dict[int, _OpenFile] = {}
        self.syncs = not library.sqlite3_compileoption_used(b"NO_SYNC")
        self.syncs_folders = self.syncs and not library.sqlite3_compileoption_used(b"DISABLE_DIRSYNC")
        self.data_only = abi.calls(library, b"fdatasync")
        self._library = library
        self._address = address
        real = abi.VfsTable.from_address(address)
        self._real_open: abi.Function = abi.OpenFunction(real.open)
        self._real_delete: abi.Function = abi.DeleteFunction(real.delete)
        self._callbacks = abi.OpenFunction(self._open), abi.DeleteFunction(self._delete)
        self._table = abi.VfsTable.from_buffer_copy(real)
        self._table.version = min(real.version, abi.NEWEST)
        self._table.next = None
        self._table.name = _NAME
        self._table.open, self._table.delete = (abi.pointer_to(callback) for callback in self._callbacks)
        self._wrapped: dict[tuple[int, bool], _FileMethods] = {}
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # the last connection is closed after the last module

    def register(self) -> None:
        """Register this VFS under its name."""
        self._library.sqlite3_vfs_register(ctypes.addressof(self._table), 0)

    def unregister(self) -> None:
        """Remove this VFS again. It must not have been used."""
        self._library.sqlite3_vfs_unregister(ctypes.addressof(self._table))

    def wraps_default(self) -> bool:
        """Whether the default VFS is still the one that this wraps."""
        return self._library.sqlite3_vfs_find(None) in (self._address, ctypes.addressof(self._table))

    @contextlib.contextmanager
    def watched_by(self, watch: _Watcher) -> Iterator[None]:
        """Make this VFS the default in a block. It stays registered: ATTACH and VACUUM look up a VFS by name."""
        previous, self.watch = self.watch, watch
        self._library.sqlite3_vfs_register(ctypes.addressof(self._table), 1)
        try:
            yield
        finally:
            self.watch = previous
            if previous is None:
                self._library.sqlite3_vfs_register(self._address, 1)

    # What SQLite calls.

    def _open(self, _vfs: int, name: int | None, file: int, flags: int, out_flags: int | None) -> int:
        args = self._address, name, file, flags, out_flags
        if name is None or flags & abi.OPEN_DELETEONCLOSE:  # a temporary file, unlinked once it is open
            return self._real_open(*args)
        c_void_p.from_address(file).value = None  # so that SQLite closes nothing if this fails
        watch, path = self.watch, abi.text(name)
        if watch is None:
            code = self._real_open(*args)
            if code == abi.OK:
                with contextlib.suppress(OSError):
                    self._wrap(file, path, flags)
            return code
        kind = "create" if watch.gate is not None and _creates(path, flags) else ""
        return watch.observed(kind, path, self._observe_open, self._real_open, *args)

    def _delete(self, _vfs: int, name: int, sync_folder: int) -> int:
        watch, path = self.watch, abi.text(name)
        if watch is None:
            return self._real_delete(self._address, name, sync_folder)
        kind = "unlink" if watch.gate is not None and _status(path) is not None else ""
        if watch.gate is None or not self.syncs_folders:
            return watch.observed(kind, path, self._observe_delete, self._real_delete, self._address, name, sync_folder)
        # In two steps, so that the gate is asked between them.
        code = watch.observed(kind, path, self._observe_delete, self._real_delete, self._address, name, 0)
        if code == abi.OK and sync_folder & 1:
            folder = os.path.dirname(path)
            return watch.observed("fsync", folder, self._observe_folder_sync, _sync_folder, folder)
        return code

    # How it is observed.

    def _observe_open(
        self, watch: _Watcher, make: _Once, _vfs: int, name: int, file: int, flags: int, _out: int
    ) -> int:
        path = abi.text(name)
        is_new = _creates(path, flags)
        code = make()
        if code == abi.OK:
            if is_new:
                watch.log.created(path, "file")
            self._wrap(file, path, flags)
            watch.log.settled(self.files[file].status)  # as root, SQLite sets the owner of a journal
        return code

    def _wrap(self, file: int, path: str, flags: int) -> None:
        """Replace the methods of a file that was just opened."""
        # The unix VFS treats a journal as new if it may create it, whether or not it existed.
        owes = self.syncs_folders and bool(flags & abi.OPEN_CREATE and flags & abi.OPEN_JOURNALS)
        self.files[file] = _OpenFile(path, _stat(path, follow_symlinks=False), owes)
        pointer = c_void_p.from_address(file)
        real = pointer.value or 0
        reads = self.watch is not None and self.watch.gate is not None and self.watch.gate.injects_errors
        if (real, reads) not in self._wrapped:
            self._wrapped[real, reads] = _FileMethods(self, real, reads=reads)
        pointer.value = self._wrapped[real, reads].address

    def _observe_delete(self, watch: _Watcher, make: _Once, _vfs: int, name: int, sync_folder: int) -> int:
        path = abi.text(name)
        status = _status(path)
        node = None if status is None else watch.log.node(status, None)
        code = make()
        if node is not None and code in (abi.OK, abi.IOERR_DIR_FSYNC):
            watch.log.unlinked(path, node)
            if sync_folder & 1:
                self.folder_synced(watch, path, failed=code != abi.OK)
        return code

    def _observe_folder_sync(self, watch: _Watcher, make: _Once, folder: str) -> int:
        code = make()
        self.folder_synced(watch, folder + "/", failed=code != abi.OK)
        return code and abi.IOERR_DIR_FSYNC

    def folder_synced(self, watch: _Watcher, path: str, *, failed: bool = False) -> None:
        """Log that the unix VFS synced the folder of a file. It uses the same call for folders as for files."""
        if self.syncs_folders:
            folder = watch.log.node(_stat(os.path.dirname(path)), None)
            watch.log.add(Fsync(folder, self.data_only, failed, causing_line()))


class _FileMethods:
    """The wrapper of one table of an open file's methods: the unix VFS has one per locking style.

    Reads are wrapped only for gates that are asked about them: they are many.
    """

    def __init__(self, vfs: _Vfs, address: int, *, reads: bool) -> None:
        self._vfs = vfs
        self._files = vfs.files
        real = abi.FileTable.from_address(address)
        self._real_close: abi.Function = abi.CloseFunction(real.close)
        self._real_read: abi.Function = abi.ReadFunction(real.read)
        self._real_write: abi.Function = abi.WriteFunction(real.write)
        self._real_truncate: abi.Function = abi.TruncateFunction(real.truncate)
        self._real_sync: abi.Function = abi.SyncFunction(real.sync)
        self._real_size: abi.Function = abi.SizeFunction(real.size)
        self._real_control: abi.Function = abi.ControlFunction(real.control)
        callbacks = {
            "close": abi.CloseFunction(self._close),
            "write": abi.WriteFunction(self._write),
            "truncate": abi.TruncateFunction(self._truncate),
            "sync": abi.SyncFunction(self._sync),
            "control": abi.ControlFunction(self._control),
            **({"read": abi.ReadFunction(self._read)} if reads else {}),
        }
        self._callbacks = callbacks
        self._table = abi.FileTable.from_buffer_copy(real)
        self._table.version = min(real.version, abi.NEWEST)
        for name, callback in callbacks.items():
            setattr(self._table, name, abi.pointer_to(callback))
        self.address = ctypes.addressof(self._table)

    # What SQLite calls.

    def _close(self, file: int) -> int:
        self._files.pop(file, None)
        return self._real_close(file)

    def _read(self, file: int, data: int, size: int, offset: int) -> int:
        watch, opened = self._vfs.watch, self._files.get(file)
        if watch is None or opened is None:
            return self._real_read(file, data, size, offset)
        return watch.observed("read", opened.path, self._observe_read, self._real_read, file, data, size, offset)

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        watch, opened = self._vfs.watch, self._files.get(file)
        if watch is None or opened is None:
            return self._real_write(file, data, size, offset)
        return watch.observed("write", opened.path, self._observe_write, self._real_write, file, data, size, offset)

    def _truncate(self, file: int, size: int) -> int:
        watch, opened = self._vfs.watch, self._files.get(file)
        if watch is None or opened is None:
            return self._real_truncate(file, size)
        return watch.observed("truncate", opened.path, self._observe_truncate, self._real_truncate, file, size)

    def _sync(self, file: int, flags: int) -> int:
        watch, opened = self._vfs.watch, self._files.get(file)
        if watch is None or opened is None:
            code = self._real_sync(file, flags)
            if code == 0 and opened is not None:
                opened.owes_folder_sync = False
            return code
        return watch.observed("fsync", opened.path, self._observe_sync, self._real_sync, file, flags)

    def _control(self, file: int, op: int, argument: int | None) -> int:
        watch = self._vfs.watch
        if watch is None or op not in (abi.FCNTL_SIZE_HINT, abi.FCNTL_BEGIN_ATOMIC_WRITE):
            return self._real_control(file, op, argument)
        return watch.observed("", "", self._observe_control, self._real_control, file, op, argument)

    # How it is observed.

    def _observe_read(self, _watch: _Watcher, make: _Once, *_: int) -> int:
        return make()

    def _observe_write(self, watch: _Watcher, make: _Once, file: int, data: int, size: int, offset: int) -> int:
        opened, log = self._files[file], watch.log
        code = make()
        if code == abi.OK:
            log.add(Write(opened.node_in(log), offset, ctypes.string_at(data, size), causing_line()))
        elif not isinstance(make, _RefusedCall):
            log.cannot_see(f"SQLite failed to write {size} bytes to {opened.path}: some of them may be in the file.")
        return code

    def _observe_truncate(self, watch: _Watcher, make: _Once, file: int, _size: int) -> int:
        code = make()
        if code == abi.OK:  # the unix VFS rounds up to whole chunks
            node = self._files[file].node_in(watch.log)
            watch.log.add(Truncate(node, self._size(file), causing_line()))
        return code

    def _observe_sync(self, watch: _Watcher, make: _Once, file: int, _flags: int) -> int:
        # The unix VFS ignores SQLITE_SYNC_DATAONLY: it was built to call fdatasync always, or never.
        opened, log = self._files[file], watch.log
        code = make()
        if self._vfs.syncs:
            log.add(Fsync(opened.node_in(log), self._vfs.data_only, code != abi.OK, causing_line()))
        if code == abi.OK and opened.owes_folder_sync:
            opened.owes_folder_sync = False
            self._vfs.folder_synced(watch, opened.path)
        return code

    def _observe_control(self, watch: _Watcher, make: _Once, file: int, op: int, _argument: int) -> int:
        opened, log = self._files[file], watch.log
        before = self._size(file)
        code = make()
        after = self._size(file)
        if op == abi.FCNTL_BEGIN_ATOMIC_WRITE and code == abi.OK:
            log.cannot_see(f"SQLite wrote {opened.path} in an atomic batch of the file system, which is not recorded.")
        if after != before:  # a mapped database grows ahead of its pages
            change = Allocate if after > before else Truncate
            log.add(change(opened.node_in(log), after, causing_line()))
        return code

    def _size(self, file: int) -> int:
        size = c_int64()
        self._real_size(file, ctypes.addressof(size))
        return size.value


@functools.cache
def _wrapper() -> _Vfs | None:
    """Wrap the default VFS of the library that `sqlite3` uses."""
    try:
        import sqlite3
    except ImportError:
        return None
    for library in abi.libraries():
        address = library.sqlite3_vfs_find(None)
        if address is None or not abi.VfsTable.from_address(address).name.startswith(b"unix"):
            continue
        vfs = _Vfs(library, address)
        vfs.register()
        # Two copies of SQLite may be loaded, even of the same version: only the right one has this VFS now.
        with contextlib.suppress(sqlite3.OperationalError):
            sqlite3.connect(f"file::memory:?vfs={_NAME.decode()}", uri=True).close()
            return vfs
        vfs.unregister()
    return None


def _creates(path: str, flags: int) -> bool:
    return bool(flags & abi.OPEN_CREATE) and _status(path) is None


def _status(path: str) -> os.stat_result | None:
    try:
        return _stat(path, follow_symlinks=False)
    except OSError:
        return None


def _sync_folder(folder: str) -> int:
    try:
        fd = _open(folder, os.O_RDONLY)
    except OSError:
        return abi.OK  # as the unix VFS does
    try:
        _sync(fd)
    except OSError:
        return abi.IOERR_DIR_FSYNC
    finally:
        _close(fd)
    return abi.OK
