"""Disk models: what a crash at each point of a trace can leave.

Pure rules over a trace; nothing is run again.

- `kill`: the process dies. Every completed op survives; a write may be cut at a page.
- `ext4`, `xfs`: a power cut. Names survive as a prefix of their order, and a file is never longer than its data. fsync
  of a file also persists the names that changed before the file did. On ext4, a rename that replaces a file flushes the
  new file's data.
- `posix`: a power cut, after which only what fsync promises is kept: any part of the rest may be lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

from pytest_wfstate.faults.bounds import MOST_LOSSES, Model
from pytest_wfstate.faults.disk.losses import CrashPoint, Data, KnownNodes, LossAxis, Names, Position
from pytest_wfstate.faults.disk.unsynced import NameChange, Resize, UnsyncedFile
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
        self._parts: dict[Node, tuple[int, Data]] = {}
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
        data = {**self._known.data, **{node: file.base for node, file in self._files.items()}}
        known = dataclasses.replace(self._known, data=data)
        files = {node: self._part(node, file) for node, file in self._files.items() if file.pieces or file.sizes}
        return CrashPoint(self._index, self._markers, self._model, known, self._names, files)

    def _part(self, node: Node, file: UnsyncedFile) -> Data:
        """Return what can be lost of a file, cached while the file does not change."""
        version, part = self._parts.get(node, (-1, None))
        if part is None or version != file.version:
            axes = _write_axis(file) if self._model == "kill" else _file_axes(file, self._model)
            part = Data(file.copy(), self._model, list(axes), self._most)
            self._parts[node] = (file.version, part)
        return part

    def _keep_all(self) -> None:
        for file in self._files.values():
            if file.pieces or file.sizes:
                file.fsync()
        self._keep_names(self._unsynced)

    def _take_names(self, index: int, op: EntryOp) -> None:
        for change in _changes(index, op, self._model):
            if change.folder == OUTSIDE:
                self._apply([change])
            else:
                self._unsynced = [*self._unsynced, change]
                self._names = None
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

    def _take_write(self, index: int, op: Write) -> None:
        file = self._file(op.node)
        self._changed[op.node] = index
        if op.end > file.size:
            self._sized[op.node] = index
        file.write(index, op)

    def _take_size(self, index: int, op: Truncate | Allocate) -> None:
        file = self._file(op.node)
        size = op.size if isinstance(op, Truncate) else max(op.size, file.size)
        self._changed[op.node] = index
        if size != file.size:
            self._sized[op.node] = index
            file.resize(Resize(index, size, file.size, truncates=size < file.size))

    def _take_fsync(self, op: Fsync) -> None:
        is_folder = self._known.kinds.get(op.node) == "folder"
        if op.failed:
            if self._model == "kill":
                return
            if is_folder:
                self._failed[op.node] = self._index
            else:
                self._file(op.node).fail()
            return
        if not is_folder:
            self._file(op.node).fsync()
        elif self._failed.get(op.node, 0) > self._changed.get(op.node, -1):
            return  # an earlier one failed, and nothing changed since: this one wrote nothing
        if self._model == "posix":
            self._keep_names([change for change in self._unsynced if change.folder == op.node])
        else:
            changed = self._sized if op.data_only and not is_folder else self._changed
            until = changed.get(op.node, -1)
            self._keep_names([change for change in self._unsynced if change.index <= until])

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
            base = self._known.data.get(node, b"")
            self._files[node] = UnsyncedFile(base=base, size=len(base))
        return self._files[node]

    def _name_axes(self) -> Iterator[LossAxis]:
        if self._model == "posix":
            for number, change in enumerate(self._unsynced):
                if change.index not in self._pinned:
                    yield LossAxis("names", number, (Position(), Position((change.index,))), possible=2)
        elif self._unsynced:
            yield _from_the_end("names", [change.index for change in self._unsynced])


def _file_axes(file: UnsyncedFile, model: Model) -> Iterator[LossAxis]:
    if file.sizes:
        yield _from_the_end("size", [size.index for size in file.sizes])
    for page, pieces in file.pieces.items():
        if model != "posix" and file.only_grows(page):
            continue  # where size follows data, such a page is lost exactly when its size is
        losses, possible = file.losses(page)
        lost = [tuple(piece.index for piece in pieces[len(pieces) - count :]) for count, _ in losses]
        yield LossAxis("page", page, tuple(map(Position, lost, losses)), possible)


def _write_axis(file: UnsyncedFile) -> Iterator[LossAxis]:
    """Yield the axis of the last write: a killed process may have written only some of its pages."""
    pages = max(1, len(file.pieces))
    indexes = tuple({piece.index for pieces in file.pieces.values() for piece in pieces})
    yield LossAxis("write", 0, (Position(), *[Position(indexes)] * (pages - 1)), possible=pages)


def _from_the_end(kind: Literal["names", "size"], indexes: list[int]) -> LossAxis:
    """Return an axis on which ever more of a sequence is lost, the last of it first."""
    lost = [tuple(dict.fromkeys(indexes[start:])) for start in reversed(range(len(indexes) + 1))]
    return LossAxis(kind, 0, tuple(map(Position, lost)), possible=len(lost))


def _changes(index: int, op: EntryOp, model: Model) -> list[NameChange]:
    """Return the change of names that an op makes; under posix a move between folders is two."""
    match op:
        case Create() | Link():
            return [NameChange(index, op.folder, (), (((op.folder, op.name), op.node),))]
        case Unlink():
            return [NameChange(index, op.folder, ((op.folder, op.name),), ())]
    old, new = (op.folder, op.name), (op.new_folder, op.new_name)
    if op.folder == op.new_folder or (model != "posix" and OUTSIDE not in (op.folder, op.new_folder)):
        return [NameChange(index, op.folder, (old,), ((new, op.node),))]
    return [
        NameChange(index, op.new_folder, (), ((new, op.node),)),
        NameChange(index, op.folder, (old,), (), second_half=True),
    ]
