"""Ops: what one run did to the disk and to the outside, in order.

A trace is the tree that a run started from, and its items: ops on files and folders, and markers, which are promises
to the outside (acks) and effects on it. A file is identified by its node, a number that stands for an inode: two names
of one file share a node, and a file that was removed and created again has two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pytest_wfstate.faults.source_lines import SourceLine

Node = int
Kind = Literal["file", "folder", "symlink"]

HOME: Node = 0
"""The node of the folder that a trace is about."""

PAGE = 4096
SECTOR = 512


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

    def copy(self) -> Tree:
        """Return an independent copy."""
        tree = Tree()
        tree.entries = dict(self.entries)
        tree.kinds = dict(self.kinds)
        tree.data = dict(self.data)
        tree.targets = dict(self.targets)
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
            case Write():
                self.data[op.node] = overwrite(self.data[op.node], op.offset, op.data)
            case Truncate():
                self.data[op.node] = resize(self.data[op.node], op.size)
            case Allocate():
                old = self.data[op.node]
                self.data[op.node] = resize(old, max(op.size, len(old)))

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

    def content(self) -> dict[str, bytes | str | None]:
        """Return what is at each path: the bytes of a file, the target of a symlink, None for a folder."""
        return {path: self._content(node) for path, node in self.walk()}

    def links(self) -> dict[str, str]:
        """Return the further names of files with several, each mapped to the first."""
        if len(set(self.entries.values())) == len(self.entries):
            return {}
        first: dict[Node, str] = {}
        return {path: first[node] for path, node in self.walk() if first.setdefault(node, path) != path}

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

    def end(self) -> Tree:
        """Return the tree after all items."""
        return replay(self.start, self.items)


def replay(start: Tree, items: Iterable[Item]) -> Tree:
    """Return `start` with `items` applied."""
    tree = start.copy()
    for item in items:
        tree.apply(item)
    return tree


def overwrite(old: bytes, offset: int, data: bytes) -> bytes:
    """Return `old` with `data` at `offset`; a gap reads as zeros."""
    old = old if len(old) >= offset else resize(old, offset)
    return old[:offset] + data + old[offset + len(data) :]


def resize(old: bytes, size: int) -> bytes:
    """Return `old` cut to `size`, or padded with zeros."""
    return old[:size] if len(old) >= size else old + bytes(size - len(old))
