"""The log that the recorders write: it gives every file a node, and every op the line of code that caused it.

Two recorders share one log, that of Python's own file calls and that of SQLite. Whoever reports an op holds
`log.lock` from before the real call until the op is in the log, so that the order of the items is the order of the
calls, whatever threads made them.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_wfstate.faults.ops import (
    HOME,
    Allocate,
    Create,
    Fsync,
    Item,
    Kind,
    Line,
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
)

OUTSIDE: Node = -1
"""Stands for every folder that is not below home. What happens there is taken to be on the disk at once."""

_MOST_ADOPTED = 16 * 2**20

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})

# The real calls: a recorder replaces those in `os`.
_stat, _fstat = os.stat, os.fstat


class Log:
    """Items, in order, about everything that was touched; `trace()` keeps what concerns home."""

    def __init__(self, home: Path) -> None:
        self.lock = threading.RLock()
        self.items: list[Item] = []
        self.unmeasured: list[str] = []
        self.origin = threading.local()
        """`origin.line` is where the work that a pool's thread is doing was asked for."""
        self._start = Tree()
        self._nodes: dict[tuple[int, int], Node] = {_key(_stat(home)): HOME}
        self._count = 0
        self._below: set[Node] = set()
        self._adopt_below(home, HOME)

    # What the recorders report. Paths are as the caller gave them, relative to `dir_fd` or the current folder.

    def created(self, path: Any, kind: Kind, *, dir_fd: int | None = None, target: str = "") -> None:
        """Report a new file, folder or symlink: it is there now, and was not before."""
        folder, name = self._entry(path, dir_fd)
        node = self._new_node(_stat(path, dir_fd=dir_fd, follow_symlinks=False))
        self.add(Create(folder, name, node, kind, target, self.line()))

    def linked(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Report a further name of a file: it is there now."""
        folder, name = self._entry(path, dir_fd)
        self.add(Link(folder, name, self.node_at(path, dir_fd), self.line()))

    def node_at(self, path: Any, dir_fd: int | None = None) -> Node:
        """Give the node under a path, itself if it is a symlink. Ask before an op that takes it away."""
        return self._node(_stat(path, dir_fd=dir_fd, follow_symlinks=False), path if dir_fd is None else None)

    def unlinked(self, path: Any, node: Node, *, dir_fd: int | None = None) -> None:
        """Report that a name is gone, which stood for `node`."""
        folder, name = self._entry(path, dir_fd)
        self.add(Unlink(folder, name, node, self.line()))

    def renamed(
        self,
        old: Any,
        new: Any,
        replaced: Node | None,
        *,
        old_dir_fd: int | None = None,
        new_dir_fd: int | None = None,
    ) -> None:
        """Report that `old` is now `new`, in the place of `replaced`."""
        folder, name = self._entry(old, old_dir_fd)
        new_folder, new_name = self._entry(new, new_dir_fd)
        node = self.node_at(new, new_dir_fd)
        self.add(Rename(folder, name, new_folder, new_name, node, replaced, self.line()))

    def wrote(self, fd: int, offset: int, data: bytes) -> None:
        """Report bytes that the kernel took."""
        self.add(Write(self.node_of(fd), offset, data, self.line()))

    def truncated(self, fd: int, size: int) -> None:
        """Report a new size."""
        self.add(Truncate(self.node_of(fd), size, self.line()))

    def allocated(self, fd: int, size: int) -> None:
        """Report that a file is at least so long now."""
        self.add(Allocate(self.node_of(fd), size, self.line()))

    def fsynced(self, fd: int, *, data_only: bool = False, failed: bool = False) -> None:
        """Report an fsync or fdatasync of a file or folder."""
        self.add(Fsync(self.node_of(fd), data_only, failed, self.line()))

    def synced(self) -> None:
        """Report a sync of everything."""
        self.add(Sync(self.line()))

    def node_of(self, fd: int) -> Node:
        """Give the node of an open file or folder."""
        return self._node(_fstat(fd), fd)

    def add(self, item: Item | Marker) -> None:
        """Put an item at the end."""
        with self.lock:
            self.items.append(item)

    def cannot_see(self, reason: str) -> None:
        """Note something that this log could not follow: what is derived from it would prove nothing."""
        with self.lock:
            if reason not in self.unmeasured:
                self.unmeasured.append(reason)

    def line(self) -> Line | None:
        """Give the first line on the stack that is neither of the standard library nor of this package."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if is_users(code.co_filename):
                return Line(code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
        return getattr(self.origin, "line", None)

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

    def _entry(self, path: Any, dir_fd: int | None) -> tuple[Node, str]:
        text = os.fsdecode(path)
        head, name = os.path.split(text.rstrip("/") or "/")
        return self._node(_stat(head or ".", dir_fd=dir_fd), None), name

    def _node(self, found: os.stat_result, source: Any) -> Node:
        node = self._nodes.get(_key(found))
        return self._adopt(found, source) if node is None else node

    def _new_node(self, found: os.stat_result) -> Node:
        self._count += 1
        self._nodes[_key(found)] = self._count
        return self._count

    def _adopt(self, found: os.stat_result, source: Any) -> Node:
        """Make a file known that was there before this log."""
        node = self._new_node(found)
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
            below = self._node(found, entry.path)
            self._below.add(below)
            self._start.entries[node, entry.name] = below
            if entry.is_dir(follow_symlinks=False):
                self._adopt_below(Path(entry.path), below)


def is_users(filename: str) -> bool:
    """Tell whether a file is of neither the standard library nor this package."""
    if filename.startswith(("<", _PACKAGE)):
        return False
    return not filename.startswith(_STANDARD) or "site-packages" in filename or "dist-packages" in filename


def _content(found: os.stat_result, source: Any) -> bytes:
    if found.st_size > _MOST_ADOPTED:
        return b""  # far from home, or the comparison at the end will tell
    if isinstance(source, int):
        source = f"/proc/self/fd/{source}"
    try:
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
