"""Mends: the fsync that is missing, found by putting one into the trace and looking what it makes impossible.

Of SQLite's files it is the pragma that is missing, which is found in the same way.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from pytest_wfstate.faults.crash.sqlite_advice import LEVELS, SqliteFiles, database_of
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import CrashedRun, State
from pytest_wfstate.faults.trace.describe import OpDescriber
from pytest_wfstate.faults.trace.ops import (
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
    Truncate,
    Unlink,
    Write,
)

_MOST_LOOKED_AT = 200  # choices of one cut


@dataclasses.dataclass(frozen=True, slots=True)
class MissingSync:
    """Something that is missing: an fsync, or a pragma."""

    run: CrashedRun
    """The same run with it."""
    advice: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Missing:
    """An fsync that should be right before or after an op."""

    op: int
    before: bool
    node: Node
    advice: str


Around = Callable[[int, Item], tuple[list[Node], list[Node]]]
"""Tells what is brought to the disk right before and right after an item."""


def first_missing_sync(state: State) -> MissingSync | None:
    """Give what would make a state impossible, if there is something."""
    for index in state.lost():
        for advice, around in _candidates(state, index):
            run, moved = _with_fsyncs(state.run, around)
            if not _is_possible(state, run, moved):
                return MissingSync(run, advice)
    return None


def _candidates(state: State, index: int) -> Iterator[tuple[str, Around]]:
    """Give what may bring a lost item to the disk, in words and as fsyncs."""
    database = _database(state, index)
    if database is not None:
        for level in LEVELS:
            yield f"PRAGMA synchronous={level} for {database.name}", _pragma(database, level)
    else:
        for missing in _places(state, index):
            yield missing.advice, _fsync(state.run, missing)


def _database(state: State, index: int) -> SqliteFiles | None:
    item = state.run.trace.items[index]
    return None if isinstance(item, Sync | Ack | Effect) else database_of(state.run.trace, item.node)


def without_missing_sync(state: State) -> list[str]:
    """Say why no fsync would help."""
    lost = state.lost()
    databases = [_database(state, index) for index in lost or range(max(0, state.point.index - 1), state.point.index)]
    if any(database and not database.has_journal for database in databases):
        return [
            "No fsync would prevent it: SQLite keeps no journal on the disk, and changes the database in place.",
            "PRAGMA journal_mode=WAL makes it keep one, and so does DELETE.",
        ]
    if not lost:
        what = "The second crash lost nothing" if state.run.first else "Nothing was lost"
        return [f"{what}: it is the order of the steps that leaves this disk. No fsync would prevent it."]
    if all(isinstance(state.run.trace.items[index], Write | Truncate | Allocate) for index in lost):
        return [
            "No fsync would prevent it: the file is changed in place, and a crash can come in the middle of that.",
            "Write a new file beside it, fsync that, and rename it over the old one.",
        ]
    return ["No single fsync would prevent it."]


def _places(state: State, index: int) -> Iterator[_Missing]:
    """Give fsyncs that would bring an item to the disk: of a file before it gets its name, or at once."""
    trace, until = state.run.trace, state.point.index
    words = OpDescriber(trace)
    item = trace.items[index]
    assert isinstance(item, Create | Link | Unlink | Rename | Write | Truncate | Allocate)
    if index < state.run.since:
        yield from _places_in_recovery(state, item, words)
    elif isinstance(item, Create | Link | Unlink | Rename):
        for folder in _folders(item):
            advice = f"an fsync of {words.folder(folder, index)} after {words.op(index)}"
            yield _Missing(index, False, folder, advice)
    else:
        last = index
        for later in range(index + 1, until):
            other = trace.items[later]
            if isinstance(other, Rename | Link) and other.node == item.node:
                advice = f"an fsync of {words.file(item.node, later)} before {words.op(later)}"
                yield _Missing(later, True, item.node, advice)
                return
            if isinstance(other, Write | Truncate | Allocate) and other.node == item.node:
                last = later
        yield _Missing(last, False, item.node, f"an fsync of {words.file(item.node, last)} after {words.op(last)}")


def _places_in_recovery(state: State, item: Item, words: OpDescriber) -> Iterator[_Missing]:
    """Give fsyncs by a recovery of what the run before it may not have come to fsync."""
    since, until = state.run.since, state.point.index
    promises = [at for at in range(since, until) if isinstance(state.run.trace.items[at], Ack | Effect)]
    at = promises[0] if promises else since
    for node in _folders(item) or [item.node]:  # type: ignore[union-attr]
        name = words.folder(node, at) if _folders(item) else words.file(node, at)
        yield _Missing(at, True, node, f"an fsync of {name} by recovery, before {words.op(at)},")


def _folders(item: Item) -> list[Node]:
    """Give the folders whose fsync keeps a change of names."""
    if isinstance(item, Rename):
        return list(dict.fromkeys([item.new_folder, item.folder]))
    return [item.folder] if isinstance(item, Create | Link | Unlink) else []


def _fsync(run: CrashedRun, missing: _Missing) -> Around:
    """Have the fsync at every op that the same line of code did."""
    line = run.trace.items[missing.op]

    def around(number: int, item: Item) -> tuple[list[Node], list[Node]]:
        alike = number == missing.op or (
            type(item) is type(line) and line.where is not None and item.where == line.where
        )
        nodes = [_like(missing.node, line, item)] if alike else []
        return (nodes, []) if missing.before else ([], nodes)

    return around


def _pragma(database: SqliteFiles, level: str) -> Around:
    return lambda _, item: ([], list(database.fsyncs_after(item, level)))


def _with_fsyncs(run: CrashedRun, around: Around) -> tuple[CrashedRun, list[int]]:
    """Put fsyncs into the trace; tell where each item went."""
    items: list[Item] = []
    moved: list[int] = []
    for number, item in enumerate(run.trace.items):
        before, after = around(number, item)
        items += map(Fsync, before)
        moved.append(len(items))
        items += [item, *map(Fsync, after)]
    moved.append(len(items))
    since = moved[run.since] if run.since else 0
    return dataclasses.replace(run, trace=Trace(run.trace.start, items), since=since), moved


def _like(node: Node, op: Item, other: Item) -> Node:
    """Give what is to another op what `node` is to `op`: its file, or its folder."""
    for name in ("node", "new_folder", "folder"):
        if getattr(op, name, None) == node:
            found: Node = getattr(other, name)
            return found
    return node


def _is_possible(state: State, run: CrashedRun, moved: list[int]) -> bool:
    """Tell whether the same disk, with the same promises made, can still be left by another run."""
    wanted = state.tree().content()
    for point in crash_points(run.trace, run.model):
        if point.index >= run.since and point.markers == state.point.markers:
            likely = point.losing(state.point, state.loss, moved.__getitem__)
            others = (loss for _, loss in itertools.islice(point.losses(), _MOST_LOOKED_AT))
            if any(point.tree(choice).content() == wanted for choice in itertools.chain([likely], others)):
                return True
    return False
