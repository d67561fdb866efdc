"""Advice: the fsync that is missing, found by adding one to the trace and testing which disks that makes impossible.

For the files of SQLite it is the pragma that is missing, found in the same way.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from pytest_wfstate.faults.crash.shrink import Check
from pytest_wfstate.faults.crash.sqlite_advice import LEVELS, SqliteFiles, database_of
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, State, distinct_states
from pytest_wfstate.faults.sync_async import Steps
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

_MOST_LOSSES = 200  # tried at one point
_MOST_LINES = 5
_MOST_LOOKS = 20_000  # combinations, to find the disks that are counted
_MOST_BYTES = 2**30  # on those disks, in all


@dataclasses.dataclass(frozen=True, slots=True)
class MissingSync:
    """Something that is missing: an fsync, or a pragma."""

    run: CrashedRun
    """The same run with it."""
    advice: str


@dataclasses.dataclass(frozen=True, slots=True)
class _SyncPlace:
    """Where an fsync is missing: right before or after an op."""

    op: int
    before: bool
    node: Node
    advice: str


Around = Callable[[int, Item], tuple[list[Node], list[Node]]]
"""Returns what is flushed right before and right after an item."""


def advise(state: State, check: Check, most: int) -> Steps[list[str]]:
    """Find the fsyncs that are missing, one after the other, until no disk fails the check.

    At most `most` disks are checked with each of them.
    """
    missing = first_missing_sync(state)
    if missing is None:
        return without_missing_sync(state)
    before, before_of, _ = yield from _failures(state.run, check, most)
    after, after_of, failing = yield from _failures(missing.run, check, most)
    lines = [f"{missing.advice[0].upper()}{missing.advice[1:]} would make this state impossible."]
    if not before:
        return lines  # a bound cut off all that fail
    lines.append(f"With it, {after:,} of {after_of:,} disks still fail; without it, {before:,} of {before_of:,}.")
    while failing is not None and len(lines) < _MOST_LINES and (missing := first_missing_sync(failing)):
        after, after_of, failing = yield from _failures(missing.run, check, most)
        lines.append(f"With {missing.advice} as well, {after:,} of {after_of:,} still fail.")
    return lines


def _failures(run: CrashedRun, check: Check, most: int) -> Steps[tuple[int, int, State | None]]:
    """Count the disks that fail the check, and those that were checked; return the one that lost the least, too."""
    failing: list[State] = []
    checked = 0
    for state in itertools.islice(distinct_states(run, Counters(looks=_MOST_LOOKS, volume=_MOST_BYTES)), most):
        checked += 1
        if (yield from check(state)) is not None:
            failing.append(state)
    return len(failing), checked, min(failing, key=lambda state: len(state.lost()), default=None)


def first_missing_sync(state: State) -> MissingSync | None:
    """Return the first fsync or pragma found that would make a state impossible, or None."""
    for index in state.lost():
        for advice, around in _candidates(state, index):
            run, moved = _with_fsyncs(state.run, around)
            if not _is_possible(state, run, moved):
                return MissingSync(run, advice)
    return None


def _candidates(state: State, index: int) -> Iterator[tuple[str, Around]]:
    """Yield what may flush a lost item, in words and as fsyncs."""
    database = _database(state, index)
    if database is not None:
        for level in LEVELS:
            yield f"PRAGMA synchronous={level} for {database.name}", _pragma(database, level)
    else:
        for place in _places(state, index):
            yield place.advice, _fsync(state.run, place)


def _database(state: State, index: int) -> SqliteFiles | None:
    item = state.run.trace.items[index]
    return None if isinstance(item, Sync | Ack | Effect) else database_of(state.run.trace, item.node)


def without_missing_sync(state: State) -> list[str]:
    """Explain why no fsync helps, and what does."""
    lost = state.lost()
    databases = [_database(state, index) for index in lost or range(max(0, state.point.index - 1), state.point.index)]
    if any(database and not database.has_journal for database in databases):
        return [
            "No fsync helps: SQLite keeps no journal on the disk, and changes the database in place.",
            "Use PRAGMA journal_mode=WAL, or DELETE: both keep one.",
        ]
    half_written = None if lost or any(databases) else _half_written(state)
    if half_written is not None:
        what = f"The crash fell in the middle of writing {half_written}."
        return [f"{what} No fsync helps; write a temporary file and rename it to {half_written}."]
    if not lost:
        crash = "second crash" if state.run.first else "crash"
        what = f"All writes reached the disk: the {crash} fell between two steps."
        return [f"{what} No fsync helps; make the step idempotent or record it first."]
    if all(isinstance(state.run.trace.items[index], Write | Truncate | Allocate) for index in lost):
        return [
            "No fsync helps: the file is changed in place, and a crash can fall in the middle of that.",
            "Write a new file beside it, fsync that, and rename it over the old one.",
        ]
    return ["No single fsync helps."]


def _half_written(state: State) -> str | None:
    """Return the file whose content was being replaced when the crash fell, under its own name, or None."""
    items, index = state.run.trace.items, state.point.index
    following = items[index] if index < len(items) else None
    if not isinstance(following, Write):
        return None
    start = index
    while start > 0 and isinstance(before := items[start - 1], Write) and before.node == following.node:
        start -= 1
    opening = items[start - 1] if start > 0 else None
    began = isinstance(opening, Create | Truncate) and opening.node == following.node
    overwrites = start < index and following.offset < len(state.run.trace.start.data.get(following.node, b""))
    renamed = any(isinstance(item, Rename | Link) and item.node == following.node for item in items[index:])
    if renamed or not (began or overwrites):
        return None
    return OpDescriber(state.run.trace).file(following.node, index)


def _places(state: State, index: int) -> Iterator[_SyncPlace]:
    """Yield fsyncs that would flush an item: of a file before it gets its name, or at once."""
    trace, until = state.run.trace, state.point.index
    describer = OpDescriber(trace)
    item = trace.items[index]
    assert isinstance(item, Create | Link | Unlink | Rename | Write | Truncate | Allocate)
    if index < state.run.since:
        yield from _places_in_recovery(state, item, describer)
    elif isinstance(item, Create | Link | Unlink | Rename):
        for folder in _folders(item):
            advice = f"an fsync of {describer.folder(folder, index)} after {describer.op(index)}"
            yield _SyncPlace(index, False, folder, advice)
    else:
        last = index
        for later in range(index + 1, until):
            other = trace.items[later]
            if isinstance(other, Rename | Link) and other.node == item.node:
                advice = f"an fsync of {describer.file(item.node, later)} before {describer.op(later)}"
                yield _SyncPlace(later, True, item.node, advice)
                return
            if isinstance(other, Write | Truncate | Allocate) and other.node == item.node:
                last = later
        yield _SyncPlace(
            last, False, item.node, f"an fsync of {describer.file(item.node, last)} after {describer.op(last)}"
        )


def _places_in_recovery(state: State, item: Item, describer: OpDescriber) -> Iterator[_SyncPlace]:
    """Yield fsyncs by a recovery, of what the run before it may have died too early to fsync."""
    since, until = state.run.since, state.point.index
    promises = (index for index in range(since, until) if isinstance(state.run.trace.items[index], Ack | Effect))
    index = next(promises, since)
    for node in _folders(item) or [item.node]:  # type: ignore[union-attr]
        name = describer.folder(node, index) if _folders(item) else describer.file(node, index)
        yield _SyncPlace(index, True, node, f"an fsync of {name} by recovery, before {describer.op(index)},")


def _folders(item: Item) -> list[Node]:
    """Return the folders whose fsync makes a change of names durable."""
    if isinstance(item, Rename):
        return list(dict.fromkeys([item.new_folder, item.folder]))
    return [item.folder] if isinstance(item, Create | Link | Unlink) else []


def _fsync(run: CrashedRun, place: _SyncPlace) -> Around:
    """Put the fsync at every op that the same line of code does."""
    op = run.trace.items[place.op]

    def around(number: int, item: Item) -> tuple[list[Node], list[Node]]:
        alike = number == place.op or (type(item) is type(op) and op.where is not None and item.where == op.where)
        nodes = [_like(place.node, op, item)] if alike else []
        return (nodes, []) if place.before else ([], nodes)

    return around


def _pragma(database: SqliteFiles, level: str) -> Around:
    return lambda _, item: ([], list(database.fsyncs_after(item, level)))


def _with_fsyncs(run: CrashedRun, around: Around) -> tuple[CrashedRun, list[int]]:
    """Add fsyncs to the trace; return the new index of each item, too."""
    items: list[Item] = []
    moved: list[int] = []
    for number, item in enumerate(run.trace.items):
        before, after = around(number, item)
        items += map(Fsync, before)
        moved.append(len(items))
        items += [item, *map(Fsync, after)]
    moved.append(len(items))
    since = moved[run.since] if run.since else 0
    return dataclasses.replace(run, trace=Trace(run.trace.start, items, run.trace.began), since=since), moved


def _like(node: Node, op: Item, other: Item) -> Node:
    """Return what is to another op what `node` is to `op`: its file, or its folder."""
    for name in ("node", "new_folder", "folder"):
        if getattr(op, name, None) == node:
            counterpart: Node = getattr(other, name)
            return counterpart
    return node


def _is_possible(state: State, run: CrashedRun, moved: list[int]) -> bool:
    """Whether another run can still leave the same disk, with as much acknowledged."""
    wanted = state.point.held(state.loss)
    for point in crash_points(run.trace, run.model):
        if point.index >= run.since and point.markers == state.point.markers:
            likely = point.losing(state.point, state.loss, moved.__getitem__)
            others = (loss for _, loss in itertools.islice(point.losses(), _MOST_LOSSES))
            if any(point.held(loss) == wanted for loss in itertools.chain([likely], others)):
                return True
    return False
