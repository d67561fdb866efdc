"""Ops: what one run did to the disk and to the outside, in order.

A trace is the tree that a run started from, and its items: ops on files and folders, and markers, which are promises
to the outside (acks) and effects on it. A file is identified by its node, a number that stands for an inode: two names
of one file share a node, and a file that was removed and created again has two.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Container, Iterable, Iterator
from typing import Any, Literal

from pytest_wfstate.faults.source_lines import SourceLine

Node = int
Kind = Literal["file", "folder", "symlink"]
Layout = tuple[tuple[str, Node], ...]
"""Every path of a tree with its node, a folder before what is in it, sorted."""

HOME: Node = 0
"""The node of the folder that a trace is about."""

PAGE = 4096
SECTOR = 512
_APART = 1000  # nanoseconds between the times of two items: a float of seconds tells them apart


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """A file, folder or symlink was created."""

    folder: Node
    name: str
    node: Node
    kind: Kind = "file"
    target: str = ""  # of a symlink
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A file got one more name."""

    folder: Node
    name: str
    node: Node
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Unlink:
    """A name of a file or symlink, or an empty folder, was removed."""

    folder: Node
    name: str
    node: Node
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Rename:
    """A file or folder got another name, and replaced what had that name."""

    folder: Node
    name: str
    new_folder: Node
    new_name: str
    node: Node
    replaced: Node | None = None
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """Bytes reached the kernel."""

    node: Node
    offset: int
    data: bytes
    where: SourceLine | None = None

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + len(self.data)


@dataclasses.dataclass(frozen=True, slots=True)
class Truncate:
    """A file was set to `size`: what lay past it is gone, what is new below it reads as zeros."""

    node: Node
    size: int
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Allocate:
    """A file was extended to at least `size`, as by fallocate."""

    node: Node
    size: int
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fsync:
    """A file or folder was flushed to the disk; with `data_only`, by fdatasync.

    If it `failed`, nothing written before it ever reaches the disk: the kernel marks the pages as clean.
    """

    node: Node
    data_only: bool = False
    failed: bool = False
    where: SourceLine | None = None
    span: tuple[int, int] | None = None
    """Where the bytes start and end that a write with O_DSYNC or O_SYNC flushed: those it wrote. None: all bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sync:
    """Everything was flushed to the disk, as by sync(2)."""

    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Ack:
    """The workload promised `value` to the outside."""

    value: Any
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """A call on the outside world was completed."""

    world: int
    call: str
    state: Any = dataclasses.field(default=None, repr=False)  # of that world, just after
    where: SourceLine | None = None


EntryOp = Create | Link | Unlink | Rename
DataOp = Write | Truncate | Allocate
Op = EntryOp | DataOp | Fsync | Sync
Marker = Ack | Effect
Item = Op | Marker

OPS = (Create, Link, Unlink, Rename, Write, Truncate, Allocate, Fsync, Sync)


class Tree:
    """What a disk holds below one folder: names, and the content of the files they refer to."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Node, str], Node] = {}
        self.kinds: dict[Node, Kind] = {HOME: "folder"}
        self.data: dict[Node, bytes] = {}
        self.targets: dict[Node, str] = {}
        self.times: dict[Node, int] = {}
        """When each file and folder was last modified, in nanoseconds, as far as that is known."""

    def copy(self) -> Tree:
        """Return an independent copy."""
        tree = Tree()
        tree.entries = dict(self.entries)
        tree.kinds = dict(self.kinds)
        tree.data = dict(self.data)
        tree.targets = dict(self.targets)
        tree.times = dict(self.times)
        return tree

    def apply(self, op: Item) -> None:
        """Apply an op to this tree. Markers and fsyncs change nothing."""
        match op:
            case Create():
                self.entries[op.folder, op.name] = op.node
                self.add(op.node, op.kind, op.target)
            case Link():
                self.entries[op.folder, op.name] = op.node
            case Unlink():
                self.entries.pop((op.folder, op.name), None)
            case Rename():
                self.entries.pop((op.folder, op.name), None)
                self.entries[op.new_folder, op.new_name] = op.node
            case Write() | Truncate() | Allocate():
                self.data[op.node] = changed(self.data[op.node], op)

    def add(self, node: Node, kind: Kind, target: str = "") -> None:
        """Add an empty node."""
        self.kinds[node] = kind
        if kind == "file":
            self.data[node] = b""
        elif kind == "symlink":
            self.targets[node] = target

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Yield the path and node of everything that can be reached, a folder before what is in it, sorted."""
        children: dict[Node, list[tuple[str, Node]]] = {}
        for (folder, name), node in self.entries.items():
            children.setdefault(folder, []).append((name, node))

        def below(folder: Node, prefix: str) -> Iterator[tuple[str, Node]]:
            for name, node in sorted(children.get(folder, ())):
                yield prefix + name, node
                if self.kinds[node] == "folder":
                    yield from below(node, f"{prefix}{name}/")

        return below(HOME, "")

    def content(self, layout: Layout | None = None) -> dict[str, bytes | str | None]:
        """Return what is at each path: the bytes of a file, the target of a symlink, None for a folder.

        `layout` is what `walk` would yield, if that is known.
        """
        return {path: self._content(node) for path, node in (self.walk() if layout is None else layout)}

    def links(self, layout: Layout | None = None) -> dict[str, str]:
        """Return the further names of files with several, each mapped to the first."""
        if len(set(self.entries.values())) == len(self.entries):
            return {}
        first: dict[Node, str] = {}
        paths = self.walk() if layout is None else layout
        return {path: first[node] for path, node in paths if first.setdefault(node, path) != path}

    def _content(self, node: Node) -> bytes | str | None:
        kind = self.kinds[node]
        if kind == "file":
            return self.data[node]
        return self.targets[node] if kind == "symlink" else None

    def path_of(self, folder: Node, name: str) -> str:
        """Return the path of an entry, as far as this tree knows it."""
        parts = [name]
        while folder != HOME:
            entry = next((entry for entry, node in self.entries.items() if node == folder), None)
            if entry is None:
                return "?/" + "/".join(parts)
            folder = entry[0]
            parts.insert(0, entry[1])
        return "/".join(parts)


@dataclasses.dataclass(slots=True)
class Trace:
    """The tree that a run started from, all of it durable, and what the run did."""

    start: Tree
    items: list[Item]
    began: int = 0
    """When the run began, in nanoseconds: its items count as a microsecond apart."""
    turns: list[str] = dataclasses.field(default_factory=list)
    """The strand of each item of the log, which has more items; empty if it does not matter who did what."""
    indexes: list[int] = dataclasses.field(default_factory=list)
    """Where each item is in the log."""
    _modified: dict[Node, list[int]] | None = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def time_of(self, node: Node, before: int, lost: Container[int]) -> int | None:
        """Return when a node was last modified by the first `before` items, except those `lost`; None if unknown."""
        if self._modified is None:
            self._modified = _modified(self.items)
        indexes = self._modified.get(node, [])
        for position in reversed(range(bisect.bisect_left(indexes, before))):
            if indexes[position] not in lost:
                return self.began + (indexes[position] + 1) * _APART
        return self.start.times.get(node)

    def turns_until(self, index: int) -> list[str]:
        """Return the strands of all that was done before an item."""
        return self.turns[: self.indexes[index - 1] + 1] if self.turns and index else []

    def strands(self) -> list[str]:
        """Return the strand of each item."""
        return [self.turns[index] for index in self.indexes] if self.turns else []

    def end(self) -> Tree:
        """Return the tree after all items."""
        return replay(self.start, self.items)


def _modified(items: Iterable[Item]) -> dict[Node, list[int]]:
    """Return the items that modify each node: a file when its data changes, a folder when a name in it does."""
    modified: dict[Node, list[int]] = {}
    for index, item in enumerate(items):
        match item:
            case Create():
                nodes = [item.folder, item.node]
            case Link() | Unlink():
                nodes = [item.folder]
            case Rename():
                nodes = [item.folder, item.new_folder]
            case Write() | Truncate() | Allocate():
                nodes = [item.node]
            case _:
                nodes = []
        for node in dict.fromkeys(nodes):
            modified.setdefault(node, []).append(index)
    return modified


def replay(start: Tree, items: Iterable[Item]) -> Tree:
    """Return `start` with `items` applied."""
    tree = start.copy()
    for item in items:
        tree.apply(item)
    return tree


def changed(old: bytes, op: DataOp) -> bytes:
    """Return the content of a file after an op."""
    match op:
        case Write():
            return overwrite(old, op.offset, op.data)
        case Truncate():
            return resize(old, op.size)
        case Allocate():
            return resize(old, max(op.size, len(old)))


def overwrite(old: bytes, offset: int, data: bytes) -> bytes:
    """Return `old` with `data` at `offset`; a gap reads as zeros."""
    old = old if len(old) >= offset else resize(old, offset)
    return old[:offset] + data + old[offset + len(data) :]


def resize(old: bytes, size: int) -> bytes:
    """Return `old` cut to `size`, or padded with zeros."""
    return old[:size] if len(old) >= size else old + bytes(size - len(old))
