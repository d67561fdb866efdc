"""Words: what the ops of a trace are called, and how a long text is cut, in everything that the lab says."""

from __future__ import annotations

import os

from pytest_wfstate.faults.disk.states import State
from pytest_wfstate.faults.source import SourceLine
from pytest_wfstate.faults.trace.ops import (
    HOME,
    Ack,
    Allocate,
    Called,
    Create,
    Effect,
    Fsync,
    Item,
    Link,
    Node,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
)

_WIDEST = 200  # of what is shown of one thing


def describe(trace: Trace) -> list[str]:
    """List the items of a trace in words, one line each."""
    words = OpDescriber(trace)
    return [words.op(index) for index in range(len(trace.items))]


class OpDescriber:
    """The words for the ops of a state's trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._tree, self._until = trace.start.copy(), 0

    def op(self, index: int) -> str:
        """Say what an item did, and where."""
        item = self._trace.items[index]
        where = f" ({short(item.where)})" if item.where else ""
        return f"{self._verb(index, item)}{where}"

    def told(self, item: Ack | Effect) -> str:
        """Say what the outside knows."""
        what = repr(item.value) if isinstance(item, Ack) else item.call
        return f"{shortened(what)}{at(item.where)}"

    def loss(self, state: State, index: int) -> str:
        """Tell how much of an op was lost."""
        item = self._trace.items[index]
        text = self._verb(index, item)
        torn = [
            f"torn after {left} bytes in page {page}"
            for at, page, left in state.point.torn(state.choice)
            if at == index
        ]
        return f"{text}{', ' + ', '.join(torn) if torn else ''}{at(item.where)}"

    def _verb(self, index: int, item: Item) -> str:
        tree = self._before(index)
        match item:
            case Create():
                verb = {"file": "create", "folder": "mkdir", "symlink": "symlink"}[item.kind]
                return f"{verb} {self._path(tree, item.folder, item.name)}"
            case Link():
                return f"link {self._path(tree, item.folder, item.name)}"
            case Unlink():
                return f"unlink {self._path(tree, item.folder, item.name)}"
            case Rename():
                old, new = self._path(tree, item.folder, item.name), self._path(tree, item.new_folder, item.new_name)
                return f"rename {old} to {new}"
            case Write():
                return f"write of {len(item.data):,} bytes at {item.offset:,} to {self.file(item.node, index)}"
            case Truncate():
                return f"truncate {self.file(item.node, index)} to {item.size:,} bytes"
            case Allocate():
                return f"allocate {item.size:,} bytes of {self.file(item.node, index)}"
            case Fsync():
                verb = "fdatasync" if item.data_only else "fsync"
                name = (
                    self.folder(item.node, index)
                    if tree.kinds.get(item.node) == "folder"
                    else self.file(item.node, index)
                )
                return f"{verb} of {name}{' that failed' if item.failed else ''}"
            case Sync():
                return "sync"
            case Ack():
                return f"ack of {shortened(repr(item.value))}"
            case Effect():
                return f"effect {shortened(item.call)}"
            case Called():
                return f"{'return from' if item.returned else 'call of'} {item.name}"

    def file(self, node: Node, index: int) -> str:
        """Give a file's name at a point, or one that it had before or after."""
        for until in (index, len(self._trace.items)):
            for path, found in self._before(until).walk():
                if found == node:
                    return shown(path)
        return "a file that has no name any more"

    def folder(self, node: Node, index: int) -> str:
        """Give a folder's name at a point."""
        return "the folder (home)" if node == HOME else f"the folder {self.file(node, index)}"

    def _path(self, tree: Tree, folder: Node, name: str) -> str:
        return shown(tree.path_of(folder, name))

    def _before(self, index: int) -> Tree:
        """Give the names just before an item. What files hold is left out: to copy it again and again takes long."""
        if index < self._until:
            self._tree, self._until = self._trace.start.copy(), 0
        for item in self._trace.items[self._until : index]:
            if isinstance(item, Create | Link | Unlink | Rename):
                self._tree.apply(item)
        self._until = index
        return self._tree


def shown(path: str) -> str:
    """Give a path in characters that can be shown: names may hold anything."""
    return path if path.isprintable() else path.encode("unicode_escape", "surrogatepass").decode()


def shortened(text: str) -> str:
    """Cut a long text, and say that it was cut."""
    more = len(text) - _WIDEST
    return text if more <= 0 else f"{text[:_WIDEST]}... ({more:,} more characters)"


def at(where: SourceLine | None) -> str:
    """Give a place in the code, to stand at the end of a line."""
    return f"   {short(where)}" if where else ""


def short(where: SourceLine) -> str:
    """Give a place in the code, by the path that it is known by here."""
    path = os.path.relpath(where.path)
    return f"{path if not path.startswith('..') else where.path}:{where.number}"
