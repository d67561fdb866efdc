"""What SQLite would flush under another PRAGMA, for advice that its users can follow.

A user cannot add an fsync to SQLite, but `PRAGMA synchronous` sets how many it makes: FULL flushes its files before it
continues, EXTRA also the folder once the rollback journal is removed, which commits a transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pytest_wfstate.faults.trace.ops import Allocate, Create, Item, Link, Node, Rename, Trace, Truncate, Unlink, Write

LEVELS = ("FULL", "EXTRA")
_HEADER = b"SQLite format 3\0"
_BESIDE = ("-journal", "-wal")


@dataclasses.dataclass(frozen=True, slots=True)
class SqliteFiles:
    """An SQLite database: its file, and those that it keeps beside it."""

    name: str
    nodes: frozenset[Node]
    has_journal: bool
    """Whether there ever was a journal or a log beside it. Without one it is changed in place, and nothing helps."""

    def fsyncs_after(self, item: Item, level: str) -> Iterator[Node]:
        """Yield what it would have flushed right after `item`."""
        if getattr(item, "node", None) not in self.nodes:
            return
        if isinstance(item, Write | Truncate | Allocate):
            yield item.node
        elif isinstance(item, Create) or (isinstance(item, Unlink) and level == "EXTRA"):
            yield item.folder


def database_of(trace: Trace, node: Node) -> SqliteFiles | None:
    """Return the database that a file belongs to, or None."""
    names = _names(trace)
    for base in _with_header(trace):
        for folder, name in names.get(base, ()):
            beside = {(folder, name + ending) for ending in _BESIDE}
            nodes = {other for other, known in names.items() if known & beside}
            if node == base or node in nodes:
                return SqliteFiles(name, frozenset({base, *nodes}), bool(nodes))
    return None


def _with_header(trace: Trace) -> set[Node]:
    """Return the files that are databases at some time."""
    at_start = {node for node, data in trace.start.data.items() if data.startswith(_HEADER)}
    return at_start | {
        item.node
        for item in trace.items
        if isinstance(item, Write) and item.offset == 0 and item.data.startswith(_HEADER)
    }


def _names(trace: Trace) -> dict[Node, set[tuple[Node, str]]]:
    """Return every name that each file had at some time."""
    names: dict[Node, set[tuple[Node, str]]] = {}
    for entry, node in trace.start.entries.items():
        names.setdefault(node, set()).add(entry)
    for item in trace.items:
        if isinstance(item, Create | Link):
            names.setdefault(item.node, set()).add((item.folder, item.name))
        elif isinstance(item, Rename):
            names.setdefault(item.node, set()).add((item.new_folder, item.new_name))
    return names
