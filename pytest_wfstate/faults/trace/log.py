"""The log of a recording: every file gets a node, and every op the line of code that caused it.

Python's own file calls and those of SQLite are recorded separately, into one log. Every op is added under `log.lock`,
held from before the real call until the op is in the log, so that the order of the items is the order of the calls,
whatever threads made them.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import stat
import threading
from collections.abc import Iterable
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
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
)

OUTSIDE: Node = -1
"""Stands for every folder that is not below home. What happens there counts as durable at once."""

_MOST_ADOPTED = 16 * 2**20


# The real calls: a recorder replaces those in `os`.
_stat, _fstat = os.stat, os.fstat


class Log:
    """Items, in order, about every file that was used; `trace()` keeps what concerns home."""

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self.lock = threading.RLock()
        self.items: list[Item] = []
        self.unmeasured: list[str] = []
        self._start = Tree()
        self._nodes: dict[tuple[int, int], Node] = {_key(_stat(home)): HOME}
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
        return self._adopt(status, source) if node is None else node

    def knows(self, status: os.stat_result) -> bool:
        """Whether the file of a stat has a node."""
        return self._find(status) is not None

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
            if isinstance(item, (Create, Link, Unlink, Rename)):
                self._name(item)

    def cannot_see(self, reason: str) -> None:
        """Add a reason why this log proves nothing."""
        with self.lock:
            if reason not in self.unmeasured:
                self.unmeasured.append(reason)

    def start_sizes(self) -> dict[Node, int]:
        """Return the size that each file had when the log first saw it."""
        return {node: len(data) for node, data in self._start.data.items()}

    def trace(self) -> Trace:
        """Return what concerns home: ops on files that were ever below it, and all markers."""
        folders, nodes = self._concerned()
        return Trace(self._start.copy(), list(_only(self.items, folders, nodes)))

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

    def _find(self, status: os.stat_result) -> Node | None:
        node = self._nodes.get(_key(status))
        return None if node in self._dead and status.st_nlink else node

    def new_node(self, status: os.stat_result) -> Node:
        """Return a new node, for a file that was just created."""
        self._count += 1
        self._nodes[_key(status)] = self._count
        return self._count

    def _adopt(self, status: os.stat_result, source: Any) -> Node:
        """Return a new node for a file that is older than this log."""
        node = self.new_node(status)
        kind: Kind = "folder" if stat.S_ISDIR(status.st_mode) else "symlink" if stat.S_ISLNK(status.st_mode) else "file"
        self._start.add(node, kind)
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


def _only(items: Iterable[Item], folders: set[Node], nodes: set[Node]) -> Iterable[Item]:
    for item in items:
        match item:
            case Create() | Link() | Unlink():
                if item.node in nodes:
                    yield _outside(item, folders)
            case Rename():
                if item.node in nodes or item.replaced in nodes:
                    yield _outside(item, folders)
            case Write() | Truncate() | Allocate() | Fsync():
                if item.node in nodes:
                    yield item
            case _:
                yield item


def _outside(item: Any, folders: set[Node]) -> Any:
    """Replace every folder of an entry op that is not below home by `OUTSIDE`."""
    changes: dict[str, Any] = {}
    for folder, name in (("folder", "name"), ("new_folder", "new_name")):
        if hasattr(item, folder) and getattr(item, folder) not in folders:
            changes[folder] = OUTSIDE
            changes[name] = f"{getattr(item, folder)}/{getattr(item, name)}"
    return dataclasses.replace(item, **changes) if changes else item
