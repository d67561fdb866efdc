"""Disk models: what a crash at each point of a trace can leave.

Pure rules over a trace; nothing is run again. Each rule comes with its source.

`kill`, the process dies: every completed op survives, and the last write may be cut at a page, since the kernel copies
it page by page (generic_perform_write).

`posix`, a power cut, after which only what POSIX and Linux promise is kept; any part of the rest may be lost:

- Each sector of 512 bytes holds a prefix of the writes to it, whatever other sectors hold: a device writes a sector
  whole, and promises no order between sectors (NVMe: AWUPF may be a single block).
- The size is a prefix of the changes to it, and may be kept without the data: zeros are read there.
- A truncate zeroes the rest of its page, as a write would, and sets the size. It may be torn: zeros, and the old size.
- A change of a name is durable once its folder is fsynced, and not by fsync of the file (fsync(2)). A rename inside a
  folder is atomic (rename(2)); between two folders it adds a name, then removes one.

`ext4` (data=ordered, auto_da_alloc) and `xfs`, a power cut:

- Each page holds a prefix of the writes to it, and of the next one a beginning or an end, cut at a sector: a page is
  written whole, and the device is the same as above. SQLite, too, expects torn writes in either direction ("Atomic
  Commit In SQLite", section 2).
- Names, truncates and allocations are kept as a prefix of their order: they are transactions of one journal (jbd2; the
  log of XFS). So fsync of a file also keeps all of them up to the last change of that file (i_sync_tid,
  xfs_log_force_seq), and fdatasync up to the last change of its size (i_datasync_tid, XFS_ILOG_TIMESTAMP).
- Size follows data: a write has grown the file only once its page is on the disk (i_disksize and di_size are set when
  the I/O completes).
- A truncate is in the journal only once the rest of its page is zeroed on the disk, together with what was written to
  that page, and what earlier writes appended (xfs_setattr_size; ext4_block_truncate_page in ordered mode). So it may
  be torn: zeros, and the old size.
- A truncate frees the pages behind the cut. What is written there later is in new ones, which the journal maps only
  after it: new data never stands beside old data that the truncate removed.
- On ext4, a rename that replaces a file flushes what is dirty of the new one (auto_da_alloc, ext4(5)).

All power cuts:

- fsync keeps what was written before it (fsync(2)). A write with O_DSYNC or RWF_DSYNC keeps the bytes of that write, in
  whole units, and the size that is needed to read them; O_SYNC and RWF_SYNC also keep truncates, and commit the journal
  as fsync does (generic_write_sync calls vfs_fsync_range). Other dirty pages stay volatile. sync_file_range(2) promises
  nothing, and is not an op.
- A failed fsync leaves its dirty pages clean, and possibly not on the disk: the next one does not write them
  (fsync(2), "PostgreSQL's fsync() surprise"). Written again, they are dirty again, with the size needed to read them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from pytest_wfstate.faults.bounds import MOST_LOSSES, Model
from pytest_wfstate.faults.disk.changes import Floor, NameChange
from pytest_wfstate.faults.disk.losses import CrashPoint, KnownNodes, LossAxis, Position
from pytest_wfstate.faults.disk.parts import CutWrite, Data, FilePart, Names, from_the_end
from pytest_wfstate.faults.disk.unsynced import UnsyncedFile
from pytest_wfstate.faults.trace.log import OUTSIDE
from pytest_wfstate.faults.trace.ops import (
    Allocate,
    Create,
    EntryOp,
    Fsync,
    Item,
    Link,
    Node,
    Rename,
    Sync,
    Trace,
    Truncate,
    Unlink,
    Write,
)


def crash_points(trace: Trace, model: Model, most: float = MOST_LOSSES) -> Iterator[CrashPoint]:
    """Yield every crash point of a trace, with the first `most` losses of each part."""
    disk = _ModelledDisk(trace, model, most)
    yield disk.point()
    for index, item in enumerate(trace.items):
        disk.take(index, item)
        yield disk.point()


def last_point(trace: Trace, model: Model) -> CrashPoint:
    """Return the crash point at the end of a trace."""
    disk = _ModelledDisk(trace, model, MOST_LOSSES)
    for index, item in enumerate(trace.items):
        disk.take(index, item)
    return disk.point()


class _ModelledDisk:
    """A disk, followed through a trace."""

    def __init__(self, trace: Trace, model: Model, most: float) -> None:
        self._model = model
        self._most = most
        start = trace.start.copy()
        self._known = KnownNodes(start.kinds, start.targets, start.data, {})
        self._entries = start.entries
        self._unsynced: list[NameChange] = []
        self._names: Names | None = None  # rebuilt after each change of names
        self._parts: dict[Node, FilePart] = {}
        self._files: dict[Node, UnsyncedFile] = {}
        self._failed: dict[Node, int] = {}  # where the last fsync of a folder failed
        self._changed: dict[Node, int] = {}  # where a node last changed
        self._sized: dict[Node, int] = {}  # and where its size last did
        self._pinned: set[int] = set()  # moves between folders of which one half is durable
        self._index = 0
        self._markers = 0

    def take(self, index: int, item: Item) -> None:
        if self._model == "kill":
            self._keep_all()
        self._index = index + 1
        match item:
            case Create() | Link() | Unlink() | Rename():
                self._take_names(index, item)
            case Write():
                self._take_write(index, item)
            case Truncate() | Allocate():
                self._take_size(index, item)
            case Fsync():
                self._take_fsync(item)
            case Sync():
                self._keep_all()
            case _:
                self._markers += 1

    def point(self) -> CrashPoint:
        if self._model == "kill":
            self._keep_names(self._unsynced)
        if self._names is None:
            self._names = Names(self._entries, self._unsynced, self._model, list(self._name_axes()), self._most)
        data = self._known.data | {node: file.base for node, file in self._files.items()}
        known = dataclasses.replace(self._known, data=data)
        files = {node: self._part(node, file) for node, file in self._files.items() if not file.is_clean}
        return CrashPoint(self._index, self._markers, self._model, known, self._names, files)

    def _part(self, node: Node, file: UnsyncedFile) -> FilePart:
        """Return what can be lost of a file, cached while the file does not change."""
        part = self._parts.get(node)
        if part is None or not part.file.is_now(file):
            part = (CutWrite if self._model == "kill" else Data)(file.at(), self._most)
            self._parts[node] = part
        return part

    def _keep_all(self) -> None:
        self._keep_names(self._unsynced)
        for node in [node for node, file in self._files.items() if not file.is_clean]:
            self._sync_file(Fsync(node))

    def _take_names(self, index: int, op: EntryOp) -> None:
        for change in _changes(index, op, self._model):
            if change.folder == OUTSIDE:
                self._apply([change])
            else:
                self._add_changes([change])
                self._changed[change.folder] = index
        self._changed[op.node] = index
        if isinstance(op, Rename):
            self._changed[op.new_folder] = index
        if isinstance(op, Create):
            self._sized[op.node] = index
            self._known.kinds[op.node] = op.kind
            if op.kind == "symlink":
                self._known.targets[op.node] = op.target
            elif op.kind == "file":
                self._known.data[op.node] = b""
        if isinstance(op, Rename) and op.replaced is not None:
            self._known.replacing.setdefault(op.node, set()).add(index)
            if self._model == "ext4" and op.node in self._files:
                self._files[op.node].flush(index)

    def _take_write(self, index: int, op: Write) -> None:
        file = self._file(op.node)
        self._changed[op.node] = index
        if op.end > len(file.now):
            self._sized[op.node] = index
        file.write(index, op)

    def _take_size(self, index: int, op: Truncate | Allocate) -> None:
        file = self._file(op.node)
        size = op.size if isinstance(op, Truncate) else max(op.size, len(file.now))
        self._changed[op.node] = index
        if size != len(file.now):
            self._sized[op.node] = index
            file.set_size(index, size)
            if self._model != "posix":
                self._add_changes([NameChange(index, op.node)])

    def _take_fsync(self, op: Fsync) -> None:
        is_folder = self._known.kinds.get(op.node) == "folder"
        if op.failed:
            if self._model == "kill":
                return
            if is_folder:
                self._failed[op.node] = self._index
            else:
                self._file(op.node).fail(op.span)
            return
        if is_folder and self._failed.get(op.node, 0) > self._changed.get(op.node, -1):
            return  # an earlier one failed, and nothing changed since: this one wrote nothing
        if self._model == "posix":
            self._keep_names([change for change in self._unsynced if change.folder == op.node])
        else:
            changed = self._sized if op.data_only and not is_folder else self._changed
            until = changed.get(op.node, -1)
            self._keep_names([change for change in self._unsynced if change.index <= until])
        if not is_folder:
            self._sync_file(op)

    def _sync_file(self, op: Fsync) -> None:
        file = self._file(op.node)
        if self._model == "posix":
            floor = Floor(0 if op.span and op.data_only else file.all_set(), {})
        else:
            floor = file.at().journaled(self._unsynced[0].index if self._unsynced else math.inf)
        self._files[op.node] = file.synced(op.span, floor)

    def _add_changes(self, changes: Sequence[NameChange]) -> None:
        self._unsynced = [*self._unsynced, *changes]
        self._names = None

    def _keep_names(self, kept: Sequence[NameChange]) -> None:
        if kept:
            self._apply(kept)
            # A move between folders never loses both names: if its second half is durable, so is its first.
            self._pinned |= {change.index for change in kept if change.second_half}
            done = {id(change) for change in kept}
            self._unsynced = [change for change in self._unsynced if id(change) not in done]

    def _apply(self, changes: Sequence[NameChange]) -> None:
        # Crash points share names and parts, so none is changed in place.
        self._entries = dict(self._entries)
        for change in changes:
            change.apply(self._entries)
        self._names = None

    def _file(self, node: Node) -> UnsyncedFile:
        if node not in self._files:
            self._files[node] = UnsyncedFile(self._known.data.get(node, b""), journaling=self._model != "posix")
        return self._files[node]

    def _name_axes(self) -> Iterator[LossAxis]:
        if self._model == "posix":
            for number, change in enumerate(self._unsynced):
                if change.index not in self._pinned:
                    yield LossAxis("names", number, (Position(), Position((change.index,))), possible=2)
        elif self._unsynced:
            yield from_the_end("names", [change.index for change in self._unsynced])


def _changes(index: int, op: EntryOp, model: Model) -> list[NameChange]:
    """Return the change of names that an op makes; under posix a move between folders is two."""
    match op:
        case Create() | Link():
            return [NameChange(index, op.folder, (), (((op.folder, op.name), op.node),))]
        case Unlink():
            return [NameChange(index, op.folder, ((op.folder, op.name),), ())]
    old, new = (op.folder, op.name), (op.new_folder, op.new_name)
    if op.folder == op.new_folder or (model != "posix" and OUTSIDE not in (op.folder, op.new_folder)):
        return [NameChange(index, op.folder, (old,), ((new, op.node),), replaces=op.replaced is not None)]
    return [
        NameChange(index, op.new_folder, (), ((new, op.node),), replaces=op.replaced is not None),
        NameChange(index, op.folder, (old,), (), second_half=True),
    ]
