"""Describe the items of a trace, for reports."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_wfstate.faults.report_text import at, short, shortened, shown
from pytest_wfstate.faults.trace.ops import (
    HOME,
    Ack,
    Allocate,
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

_MOST_SPANS = 3  # of missing bytes that are listed for one write


def describe(trace: Trace) -> list[str]:
    """Return the items of a trace, one line each."""
    describer = OpDescriber(trace)
    return [describer.op(index) for index in range(len(trace.items))]


class OpDescriber:
    """Describes the items of one trace. It follows the names of files, so ask for items in order if you can."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._tree, self._until = trace.start.copy(), 0

    def op(self, index: int) -> str:
        """Describe an item, with its line of code."""
        item = self._trace.items[index]
        where = f" ({short(item.where)})" if item.where else ""
        return f"{self._verb(index, item)}{where}"

    def marker(self, item: Ack | Effect) -> str:
        """Describe what the outside knows."""
        what = repr(item.value) if isinstance(item, Ack) else item.call
        return f"{shortened(what)}{at(item.where)}"

    def loss(self, index: int, torn: Iterable[tuple[int, int, int]]) -> str:
        """Describe a lost op. `torn` are torn ops: the index, and the bytes that a write missed, or a cut zeroed."""
        item = self._trace.items[index]
        spans = [f"{start:,} to {end - 1:,}" for op, start, end in torn if op == index]
        more = ["..."] if len(spans) > _MOST_SPANS else []
        what = "zeros reached the disk at" if isinstance(item, Truncate) else "missing"
        tear = f", torn ({what} bytes {', '.join([*spans[:_MOST_SPANS], *more])})" if spans else ""
        return f"{self._verb(index, item)}{tear}{at(item.where)}"

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
                if item.span:
                    verb += f" (bytes {item.span[0]:,} to {item.span[1] - 1:,})"
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

    def file(self, node: Node, index: int) -> str:
        """Return the path of a file just before an item, or else at the end."""
        for until in (index, len(self._trace.items)):
            for path, other in self._before(until).walk():
                if other == node:
                    return shown(path)
        return "an unlinked file"

    def folder(self, node: Node, index: int) -> str:
        """Return the name of a folder just before an item."""
        return "the folder (home)" if node == HOME else f"the folder {self.file(node, index)}"

    def _path(self, tree: Tree, folder: Node, name: str) -> str:
        return shown(tree.path_of(folder, name))

    def _before(self, index: int) -> Tree:
        """Return the tree just before an item, without the content of files: copying that takes long."""
        if index < self._until:
            self._tree, self._until = self._trace.start.copy(), 0
        for item in self._trace.items[self._until : index]:
            if isinstance(item, Create | Link | Unlink | Rename):
                self._tree.apply(item)
        self._until = index
        return self._tree
