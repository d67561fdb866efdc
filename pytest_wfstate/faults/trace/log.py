"""The log that the recorders write: it gives every file a node, and every op the line of code that caused it.

Two recorders share one log, that of Python's own file calls and that of SQLite. Whoever reports an op holds
`log.lock` from before the real call until the op is in the log, so that the order of the items is the order of the
calls, whatever threads made them.
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

from pytest_wfstate.faults.source import causing_line
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
"""Stands for every folder that is not below home. What happens there is taken to be on the disk at once."""

_MOST_ADOPTED = 16 * 2**20


# The real calls: a recorder replaces those in `os`.
_stat, _fstat = os.stat, os.fstat


class Log:
    """Items, in order, about everything that was touched; `trace()` keeps what concerns home."""

    def __init__(self, home: Path) -> None:
        self.lock = threading.RLock()
        self.items: list[Item] = []
        self.unmeasured: list[str] = []
        self._start = Tree()
        self._nodes: dict[tuple[int, int], Node] = {_key(_stat(home)): HOME}
        self._count = 0
        self._below: set[Node] = set()
        self._names: dict[Node, list[tuple[Node, str]]] = {}
        self._dead: set[Node] = set()
        self._adopt_below(home, HOME)

    # What the recorders report. Paths are as the caller gave them, relative to `dir_fd` or the current folder.

    def created(self, path: Any, kind: Kind, *, dir_fd: int | None = None, target: str = "") -> None:
        """Report a new file, folder or symlink: it is there now, and was not before."""
        folder, name = self.entry(path, dir_fd)
        node = self.born(_stat(path, dir_fd=dir_fd, follow_symlinks=False))
        self.add(Create(folder, name, node, kind, target, causing_line()))

    def unlinked(self, path: Any, node: Node, *, dir_fd: int | None = None) -> None:
        """Report that a name is gone, which stood for `node`."""
        folder, name = self.entry(path, dir_fd)
        self.add(Unlink(folder, name, node, causing_line()))

    def node_for(self, found: os.stat_result) -> Node:
        """Give the node of what a stat found, without opening it: to close it would drop its locks (fcntl(2))."""
        return self.node(found, None)

    def node(self, found: os.stat_result, source: Any) -> Node:
        """Give the node of what a stat found; `source` is its path or descriptor, to read it if it is new to us."""
        node = self._find(found)
        return self._adopt(found, source) if node is None else node

    def knows(self, found: os.stat_result) -> bool:
        """Tell whether what a stat found has a node."""
        return self._find(found) is not None

    def died(self, node: Node) -> None:
        """Hear that a node has lost its last name: its inode may come back as another file's."""
        self._dead.add(node)

    def path(self, node: Node) -> str | None:
        """Give the path of a node below home ("." for home itself): its last name, if it has none any more.

        None stands for all that is not below home.
        """
        if node == HOME:
            return "."
        names = self._names.get(node)
        return self.path_of(*names[-1]) if names else None

    def path_of(self, folder: Node, name: str) -> str | None:
        """Give the path of an entry below home, or None."""
        above = self.path(folder)
        return name if above == "." else above and f"{above}/{name}"

    def arrives(self, folder: Any, node: Node) -> None:
        """Make known what is in a folder that was elsewhere, just before it is moved below home."""
        self._adopt_below(folder, node)

    def add(self, item: Item | Marker) -> None:
        """Put an item at the end."""
        with self.lock:
            self.items.append(item)
            if isinstance(item, (Create, Link, Unlink, Rename)):
                self._name(item)

    def cannot_see(self, reason: str) -> None:
        """Note something that this log could not follow: what is derived from it would prove nothing."""
        with self.lock:
            if reason not in self.unmeasured:
                self.unmeasured.append(reason)

    def start_sizes(self) -> dict[Node, int]:
        """Give the size that each file had when this log first met it."""
        return {node: len(data) for node, data in self._start.data.items()}

    def trace(self) -> Trace:
        """Give what concerns home: ops on files that were ever below it, and all markers."""
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
        """Give the folder and the name that a path stands for, whether or not anything is there."""
        text = os.fsdecode(path)
        head, name = os.path.split(text.rstrip("/") or "/")
        return self.node(_stat(head or ".", dir_fd=dir_fd), None), name

    def _name(self, op: EntryOp) -> None:
        """Follow the names of a node. The last one stays: an open file may be written after it was unlinked."""
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

    def _find(self, found: os.stat_result) -> Node | None:
        node = self._nodes.get(_key(found))
        return None if node in self._dead and found.st_nlink else node

    def born(self, found: os.stat_result) -> Node:
        """Give a node to what has just come to be."""
        self._count += 1
        self._nodes[_key(found)] = self._count
        return self._count

    def _adopt(self, found: os.stat_result, source: Any) -> Node:
        """Make a file known that was there before this log."""
        node = self.born(found)
        kind: Kind = "folder" if stat.S_ISDIR(found.st_mode) else "symlink" if stat.S_ISLNK(found.st_mode) else "file"
        self._start.add(node, kind)
        if kind == "file" and stat.S_ISREG(found.st_mode) and source is not None:
            self._start.data[node] = _content(found, source)
        elif kind == "symlink" and source is not None and not isinstance(source, int):
            self._start.targets[node] = os.readlink(os.fsdecode(source))
        return node

    def _adopt_below(self, folder: Path, node: Node) -> None:
        """Make everything known that is below home from the start."""
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            found = entry.stat(follow_symlinks=False)
            below = self.node(found, entry.path)
            self._below.add(below)
            names = self._names.setdefault(below, [])
            if (node, entry.name) not in names:  # else an op that this log has seen put it there
                names.append((node, entry.name))
                self._start.entries[node, entry.name] = below
            if entry.is_dir(follow_symlinks=False):
                self._adopt_below(Path(entry.path), below)


def _content(found: os.stat_result, source: Any) -> bytes:
    if found.st_size > _MOST_ADOPTED:
        return b""  # far from home, or the comparison at the end will tell
    try:
        if isinstance(source, int):
            # To open and close it would drop the locks that its owner has on it (fcntl(2)).
            readable = fcntl.fcntl(source, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
            return os.pread(source, found.st_size, 0) if readable else b""
        with open(source, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


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
    """Give an entry op with every folder that is not below home replaced by the one that stands for them all."""
    changes: dict[str, Any] = {}
    for folder, name in (("folder", "name"), ("new_folder", "new_name")):
        if hasattr(item, folder) and getattr(item, folder) not in folders:
            changes[folder] = OUTSIDE
            changes[name] = f"{getattr(item, folder)}/{getattr(item, name)}"
    return dataclasses.replace(item, **changes) if changes else item
