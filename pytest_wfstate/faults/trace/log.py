"""The log of a recording: every file gets a node, and every op the line of code that caused it.

Python's own file calls and those of SQLite are recorded separately, into one log. Every op is added under `log.lock`,
held from before the real call until the op is in the log, so that the order of the items is the order of the calls,
whatever threads made them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.trace.ops import (
    HOME,
    Allocate,
    Create,
    EntryOp,
    Fsync,
    Item,
    Kind,
    Link,
    Marker,
    Node,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
    changed,
)
from pytest_wfstate.faults.trace.strands import Strands

OUTSIDE: Node = -1
"""Stands for every folder that is not below home. What happens there counts as durable at once."""

_MOST_ADOPTED = 16 * 2**20
_CHANGED_BY: dict[type, tuple[str, ...]] = {
    Create: ("folder", "node"),
    Link: ("folder", "node"),
    Unlink: ("folder", "node"),
    Rename: ("folder", "new_folder", "node", "replaced"),
    Write: ("node",),
    Truncate: ("node",),
    Allocate: ("node",),
}
"""The fields of each op whose nodes get a new ctime."""


# The real calls: a recorder replaces those in `os`.
_stat, _fstat = os.stat, os.fstat


@dataclasses.dataclass(frozen=True, slots=True)
class Unflushed:
    """What has happened to a file since it was last flushed."""

    before: bytes
    """Its content then."""
    now: bytes
    grew: bool
    """Whether what was written needs room on the disk that may not be there."""


class Log:
    """Items, in order, about every file that was used; `trace()` keeps what concerns home."""

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self.lock = threading.RLock()
        self.strands = Strands()
        self.items: list[Item] = []
        self.unmeasured: list[str] = []
        self._turns: list[str] = []
        self._start = Tree()
        self._began = time.clock_gettime_ns(time.CLOCK_REALTIME)  # that of file times: never frozen
        status = _stat(home)
        self._start.times[HOME] = status.st_mtime_ns
        self._nodes: dict[tuple[int, int], Node] = {_key(status): HOME}
        self._changed: dict[Node, int] = {HOME: status.st_ctime_ns}
        """When each file or folder was last changed, in nanoseconds, by what is in the log."""
        self._touched: set[Node] = set()
        self._is_making = False
        self._count = 0
        self._below: set[Node] = set()
        self._names: dict[Node, list[tuple[Node, str]]] = {}
        self._dead: set[Node] = set()
        self.adopt_below(home, HOME)

    # Paths are as the caller gave them, relative to `dir_fd` or the current folder.

    def created(self, path: Any, kind: Kind, *, dir_fd: int | None = None, target: str = "") -> None:
        """Log a new file, folder or symlink, after it was created."""
        folder, name = self.entry(path, dir_fd)
        node = self.new_node(_stat(path, dir_fd=dir_fd, follow_symlinks=False))
        self.add(Create(folder, name, node, kind, target, causing_line()))

    def unlinked(self, path: Any, node: Node, *, dir_fd: int | None = None) -> None:
        """Log that a name of `node` was removed."""
        folder, name = self.entry(path, dir_fd)
        self.add(Unlink(folder, name, node, causing_line()))

    def node(self, status: os.stat_result, source: Any) -> Node:
        """Return the node of a file by its stat.

        `source` is its path or descriptor, from which a file that is new to the log is read; None leaves it unread:
        closing a file that SQLite has open would drop its locks (fcntl(2)).
        """
        node = self._find(status)
        if node is None:
            return self._adopt(status, source)
        self._compare(node, status)
        return node

    def knows(self, status: os.stat_result) -> bool:
        """Whether the file of a stat has a node."""
        return self._find(status) is not None

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Hold the lock while an op is made and logged: until then, what it changes is not explained."""
        with self.lock:
            before, self._is_making = self._is_making, True
            try:
                yield
            finally:
                self._is_making = before

    def settled(self, status: os.stat_result) -> None:
        """Take note that a recorded call, or one that changes no content, has changed the file of a stat."""
        node = self._find(status)
        if node is not None:
            self._changed[node] = status.st_ctime_ns

    def touched(self) -> list[str]:
        """Return the paths below home of what was changed by something that is not in the log.

        Whoever changes a file, or the names in a folder, changes its ctime, which cannot be put back. A change within
        the same tick of the file system's clock as a recorded one does not show.
        """
        with self.lock:
            for node in list(self._changed):
                status = self._status(node)
                if status is not None:
                    self._compare(node, status)
            paths = {self.path(node) for node in self._touched}
        return sorted(path for path in paths if path is not None)

    def has_shm(self, path: str) -> bool:
        """Whether SQLite keeps a `-shm` file in a folder, which it makes and removes unseen."""
        return any(
            name.endswith(("-wal", "-shm")) and self.path(folder) == path
            for names in self._names.values()
            for folder, name in names
        )

    def lost_last_name(self, node: Node) -> None:
        """Take note that a node has no name left: its inode may be reused for another file."""
        self._dead.add(node)

    def path_below(self, path: str) -> str | None:
        """Return an absolute path relative to home, which is ".", or None if it is not below home."""
        if path == self.home:
            return "."
        return path.removeprefix(self.home + "/") if path.startswith(self.home + "/") else None

    def path(self, node: Node) -> str | None:
        """Return the path of a node relative to home, which is ".", or None if it is not below home.

        A node that has lost its last name keeps that path.
        """
        if node == HOME:
            return "."
        names = self._names.get(node)
        return self.path_of(*names[-1]) if names else None

    def path_of(self, folder: Node, name: str) -> str | None:
        """Return the path of an entry relative to home, or None if it is not below home."""
        above = self.path(folder)
        return name if above == "." else above and f"{above}/{name}"

    def add(self, item: Item | Marker) -> None:
        """Append an item."""
        with self.lock:
            self.items.append(item)
            self._turns.append(self.strands.done())
            if isinstance(item, (Create, Link, Unlink, Rename)):
                self._name(item)
            for node in {getattr(item, name, None) for name in _CHANGED_BY.get(type(item), ())}:
                self._settle(node)

    def cannot_see(self, reason: str) -> None:
        """Add a reason why this log proves nothing."""
        with self.lock:
            if reason not in self.unmeasured:
                self.unmeasured.append(reason)

    def start_sizes(self) -> dict[Node, int]:
        """Return the size that each file had when the log first saw it."""
        return {node: len(data) for node, data in self._start.data.items()}

    def unflushed(self, node: Node) -> Unflushed:
        """Return what has happened to a file since the kernel last flushed it, or failed to."""
        data = flushed = self._start.data.get(node, b"")
        grew = False
        for item in self.items:
            if isinstance(item, Sync) or (isinstance(item, Fsync) and item.node == node):
                flushed, grew = data, False
            elif isinstance(item, (Write, Truncate, Allocate)) and item.node == node:
                old, data = data, changed(data, item)
                grew = grew or len(data) > len(old)
        return Unflushed(flushed, data, grew)

    def trace(self) -> Trace:
        """Return what concerns home: ops on files that were ever below it, and all markers."""
        folders, nodes = self._concerned()
        kept = list(_only(self.items, folders, nodes))
        items = [item for _, item in kept]
        if not self.strands.are_several:
            return Trace(self._start.copy(), items, self._began)
        indexes = [index for index, _ in kept]
        return Trace(self._start.copy(), items, self._began, list(self._turns), indexes)

    def _concerned(self) -> tuple[set[Node], set[Node]]:
        folders = {HOME} | {
            node for node, kind in self._start.kinds.items() if kind == "folder" and node in self._below
        }
        nodes = set(self._below) | {HOME}
        kinds = dict(self._start.kinds)
        grew = True
        while grew:
            before = len(folders), len(nodes)
            for item in self.items:
                if isinstance(item, Create):
                    kinds[item.node] = item.kind
                    into = item.folder
                elif isinstance(item, Link):
                    into = item.folder
                elif isinstance(item, Rename):
                    into = item.new_folder
                else:
                    continue
                if into in folders:
                    nodes.add(item.node)
                    if kinds.get(item.node) == "folder":
                        folders.add(item.node)
            grew = before != (len(folders), len(nodes))
        return folders, nodes

    def entry(self, path: Any, dir_fd: int | None = None) -> tuple[Node, str]:
        """Return the folder and the name that a path refers to, whether or not it exists."""
        text = os.fsdecode(path)
        head, name = os.path.split(text.rstrip("/") or "/")
        return self.node(_stat(head or ".", dir_fd=dir_fd), None), name

    def _name(self, op: EntryOp) -> None:
        """Follow the names of a node. The last one is kept: an open file may be written after it was unlinked."""
        names = self._names.setdefault(op.node, [])
        match op:
            case Create() | Link():
                names.append((op.folder, op.name))
            case Unlink():
                if len(names) > 1 and (op.folder, op.name) in names:
                    names.remove((op.folder, op.name))
            case Rename():
                if (op.folder, op.name) in names:
                    names.remove((op.folder, op.name))
                names.append((op.new_folder, op.new_name))

    def _compare(self, node: Node, status: os.stat_result) -> None:
        """Note a change that no recorded op explains. While the lock is free, those of all ops are explained."""
        with self.lock:
            if not self._is_making and status.st_ctime_ns > self._changed.get(node, status.st_ctime_ns):
                self._touched.add(node)

    def _settle(self, node: Node | None) -> None:
        """Take note that an op has changed a node."""
        if node is None or node not in self._changed:
            return
        status = self._status(node)
        if status is None:
            del self._changed[node]  # it has lost its last name
        else:
            self._changed[node] = status.st_ctime_ns

    def _status(self, node: Node) -> os.stat_result | None:
        """Return the stat of a node below home, or None if it is not there any more."""
        path = self.path(node)
        if path is None:
            return None
        try:
            status = _stat(os.path.join(self.home, path), follow_symlinks=False)
        except OSError:
            return None
        return status if self._find(status) == node else None

    def _find(self, status: os.stat_result) -> Node | None:
        node = self._nodes.get(_key(status))
        return None if node in self._dead and status.st_nlink else node

    def new_node(self, status: os.stat_result) -> Node:
        """Return a new node, for a file that was just created."""
        self._count += 1
        self._nodes[_key(status)] = self._count
        self._changed[self._count] = status.st_ctime_ns
        return self._count

    def _adopt(self, status: os.stat_result, source: Any) -> Node:
        """Return a new node for a file that is older than this log."""
        node = self.new_node(status)
        kind: Kind = "folder" if stat.S_ISDIR(status.st_mode) else "symlink" if stat.S_ISLNK(status.st_mode) else "file"
        self._start.add(node, kind)
        self._start.times[node] = status.st_mtime_ns
        if kind == "file" and stat.S_ISREG(status.st_mode) and source is not None:
            self._start.data[node] = _content(status, source)
        elif kind == "symlink" and source is not None and not isinstance(source, int):
            self._start.targets[node] = os.readlink(os.fsdecode(source))
        return node

    def adopt_below(self, folder: Any, node: Node) -> None:
        """Learn what is in a folder: home itself, or one that is about to be moved below home."""
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            below = self.node(entry.stat(follow_symlinks=False), entry.path)
            self._below.add(below)
            names = self._names.setdefault(below, [])
            if (node, entry.name) not in names:  # else a logged op put it there
                names.append((node, entry.name))
                self._start.entries[node, entry.name] = below
            if entry.is_dir(follow_symlinks=False):
                self.adopt_below(entry.path, below)


def _content(status: os.stat_result, source: Any) -> bytes:
    if status.st_size > _MOST_ADOPTED:
        return b""  # outside home it does not matter, below home the comparison at the end finds it
    try:
        if isinstance(source, int):
            # Opening and closing it would drop its owner's locks (fcntl(2)).
            readable = fcntl.fcntl(source, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
            return os.pread(source, status.st_size, 0) if readable else b""
        with open(source, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _only(items: Iterable[Item], folders: set[Node], nodes: set[Node]) -> Iterator[tuple[int, Item]]:
    """Yield what concerns these folders and nodes, and where it is in the log."""
    for index, item in enumerate(items):
        match item:
            case Create() | Link() | Unlink():
                if item.node in nodes:
                    yield index, _outside(item, folders)
            case Rename():
                if item.node in nodes or item.replaced in nodes:
                    yield index, _outside(item, folders)
            case Write() | Truncate() | Allocate() | Fsync():
                if item.node in nodes:
                    yield index, item
            case _:
                yield index, item


def _outside(item: Any, folders: set[Node]) -> Any:
    """Replace every folder of an entry op that is not below home by `OUTSIDE`."""
    changes: dict[str, Any] = {}
    for folder, name in (("folder", "name"), ("new_folder", "new_name")):
        if hasattr(item, folder) and getattr(item, folder) not in folders:
            changes[folder] = OUTSIDE
            changes[name] = f"{getattr(item, folder)}/{getattr(item, name)}"
    return dataclasses.replace(item, **changes) if changes else item
