"""States: the distinct disks that crashes of a run can leave, in a fixed order, likely bugs first."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pytest_wfstate.faults.bounds import MOST_LOSSES, Model
from pytest_wfstate.faults.disk.home import HomeImage
from pytest_wfstate.faults.disk.losses import CrashPoint, DiskLoss, PartLoss
from pytest_wfstate.faults.disk.models import crash_points, last_point
from pytest_wfstate.faults.disk.order import in_order
from pytest_wfstate.faults.replay_id import CrashId, FailedId, ReplayId, TraceChanged, turns_text
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.log import OUTSIDE
from pytest_wfstate.faults.trace.ops import HOME, OPS, PAGE, Ack, Effect, Item, Node, Trace, Tree, Write

__tracebackhide__ = True

_NODES = ("node", "folder", "new_folder", "replaced")
_DETAILS = ("kind", "data_only", "failed", "world")
_LOOKS = 50  # between two looks at the clock


@dataclasses.dataclass(frozen=True, slots=True)
class InjectedFailure:
    """An op that was made to fail in a run, and how the workload reacted."""

    kind: str
    error: str
    number: int
    """Which op of the run it was, counted from 1."""
    what: str
    """What failed, and how, as a sentence."""
    reaction: str
    """How the workload reacted, as a sentence."""
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CrashedRun:
    """What led to a disk: one run, or a run, its crash, and the recovery that crashed as well."""

    trace: Trace
    model: Model
    worlds: tuple[Any, ...]
    """The state of each world at the start."""
    since: int = 0
    """The first crash point that belongs to the last run."""
    first: State | None = None
    """The crash before it, if the last run is a recovery."""
    injected: InjectedFailure | None = None
    """The op that was made to fail in the run, if any."""
    ended: bool = False
    """Whether the run was completed, without a crash."""
    order: str = ""
    """How a replay makes its threads and tasks have their turns; empty if they ran as they liked."""
    order_in_words: str = ""
    """The same for the report; empty also if they would have had the same turns by themselves."""

    def acked(self, point: int) -> list[Any]:
        """Return what had been acknowledged."""
        return [item.value for item in self.trace.items[:point] if isinstance(item, Ack)]

    def effects(self, point: int) -> list[str]:
        """Return what had been done to the outside world."""
        return [item.call for item in self.trace.items[:point] if isinstance(item, Effect)]

    def worlds_at(self, point: int) -> list[Any]:
        """Return the state of each world."""
        states = list(self.worlds)
        for item in self.trace.items[:point]:
            if isinstance(item, Effect) and item.world < len(states):  # others were made in the run itself
                states[item.world] = item.state
        return states

    def fingerprint(self, point: int | None = None) -> str:
        """Return a hash of the shape of the trace, the same for every run that does the same ops.

        Contents and names contain times and random parts, which differ between runs of the same code. So a file or a
        name counts by when it was first used: whether it is used again, and whether it exists, matters; what it is
        called does not. Of several strands, the first half is what each did, and the second half in which order.
        """
        items = self.trace.items[: point if self._is_followed else None]
        shape = [*_shapes(items), self.injected and self.injected.kind]
        strands = self.trace.strands()[: len(items)]
        if not strands:
            return _hash(shape)
        each = [(name, *_shapes(_of(name, items, strands))) for name in sorted(set(strands))]
        return _hash(each)[:4] + _hash([shape, strands])[:4]

    def order_until(self, point: int) -> str:
        """Return the order of a replay id: what each strand did before a point, if no rule says who has its turn."""
        return turns_text(self.trace.turns_until(point)) if self._is_followed else self.order

    @property
    def _is_followed(self) -> bool:
        return bool(self.trace.turns) and (not self.order or self.order.startswith("t"))


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One disk that a crash can leave."""

    run: CrashedRun
    point: CrashPoint
    loss: DiskLoss

    def tree(self) -> Tree:
        """Return what is on the disk."""
        return self.point.tree(self.loss)

    def image(self) -> HomeImage:
        """Return what is on the disk, to build it: files get times in the order in which they were modified."""
        tree, lost, trace = self.tree(), set(self.lost()), self.run.trace
        layout = self.point.layout(self.loss)
        times = {path: trace.time_of(node, self.point.index, lost) for path, node in (*layout, (".", HOME))}
        known = {path: time for path, time in times.items() if time is not None}
        return HomeImage(tree.content(layout), tree.links(layout), known)

    def lost(self) -> list[int]:
        """Return the items that are lost, in whole or in part."""
        return self.point.lost(self.loss)

    def torn(self) -> list[tuple[int, int, int]]:
        """Return the torn ops: the index, and where the bytes that a write missed, or a cut zeroed, start and end."""
        return self.point.torn(self.loss)

    def at(self, point: CrashPoint) -> State:
        """Return the state at another point with the same losses, as far as they are possible there."""
        return dataclasses.replace(self, point=point, loss=point.losing(self.point, self.loss, lambda index: index))

    def with_position(self, part: int, axis: int, position: int) -> State:
        """Return the state with another position on one axis."""
        positions = dict(self.loss[part]) | {axis: position}
        return self.with_loss(part, tuple((axis, at) for axis, at in sorted(positions.items()) if at))

    def with_loss(self, part: int, loss: PartLoss) -> State:
        """Return the state with another loss of one part."""
        return dataclasses.replace(self, loss=(*self.loss[:part], loss, *self.loss[part + 1 :]))

    def replay_id(self, ordinal: int) -> ReplayId:
        """Return the id that finds this state again in another run of the test."""
        injected = self.run.injected
        failed = FailedId(injected.error, injected.number, self.run.fingerprint()) if injected else None
        first = self.run.first or self
        order = "" if injected else first.run.order_until(first.point.index)
        return ReplayId(ordinal, () if self.run.ended else self.ids(), failed, order=order)

    def ids(self) -> tuple[CrashId, ...]:
        """Return the ids of its crashes."""
        losses = ((part, axis, position) for part, part_loss in enumerate(self.loss) for axis, position in part_loss)
        last = CrashId(self.run.model, self.point.index, tuple(losses), self.run.fingerprint(self.point.index))
        return (*self.run.first.ids(), last) if self.run.first else (last,)


@dataclasses.dataclass(slots=True)
class Counters:
    """How many disks are possible, and how many were tried."""

    possible: int = 0
    looked: int = 0
    distinct: int = 0
    seen: set[Any] = dataclasses.field(default_factory=set)
    all_seen: int = 0
    is_over: bool = False
    """Whether no more may be looked at."""
    time_left: Callable[[], bool] = lambda: True
    """Whether the safety net has not struck."""
    looks: float = math.inf
    """How many disks may be looked at: the next distinct one may be far away."""
    derived: int = 0
    """How many bytes are on the disks that were looked at."""
    volume: float = math.inf
    """How many there may be."""
    most: float = MOST_LOSSES
    """How many losses of one file, or of the names, are tried at one crash point."""
    _markers: list[Item] = dataclasses.field(default_factory=list)

    def promises(self, items: Sequence[Item]) -> list[int]:
        """Return a key for the markers before each crash point: they are kept, so that their ids stay unique."""
        keys = [0]
        for item in items:
            is_marker = not isinstance(item, OPS)
            self._markers += [item] if is_marker else []
            keys.append(hash((keys[-1], id(item))) if is_marker else keys[-1])
        return keys

    def may_look(self, size: int) -> bool:
        """Whether one more disk, of this many bytes, may be looked at; it is counted."""
        is_full = self.looked >= self.looks or self.derived >= self.volume
        if is_full or (self.looked and self.looked % _LOOKS == 0 and not self.time_left()):
            self.is_over = True
        if not self.is_over:
            self.looked += 1
            self.derived += size
        return not self.is_over

    def add_one(self) -> None:
        """Count a disk that was not derived from a trace."""
        self.possible += 1
        self.looked += 1
        self.distinct += 1
        self.all_seen += 1

    @property
    def skipped(self) -> int:
        """At most how many losses were not tried."""
        return self.possible - max(self.all_seen, min(self.looked, self.possible))


def end_state(run: CrashedRun) -> State:
    """Return the disk of an uninterrupted run."""
    point = last_point(run.trace, "kill")
    return State(dataclasses.replace(run, model="kill", since=point.index), point, point.kept)


def distinct_states(run: CrashedRun, counters: Counters) -> Iterator[State]:
    """Yield each pair of a disk and the promises made once, in the order of `order.in_order`."""
    points = [point for point in crash_points(run.trace, run.model, counters.most) if point.index >= run.since]
    counters.possible += sum(point.possible for point in points)
    promises = counters.promises(run.trace.items)
    for point, loss in in_order(run.trace, points):
        if not counters.may_look(point.size):
            return
        key = (point.key(loss), promises[point.index])
        if key not in counters.seen:
            counters.seen.add(key)
            counters.distinct += 1
            yield State(run, point, loss)
    counters.all_seen += sum(point.possible for point in points if point.is_complete())


def find(run: CrashedRun, wanted: CrashId) -> State:
    """Return the state that an id refers to.

    Raises:
        TraceChanged: the run differs from the one that the id was made for.
    """
    state = None
    fingerprint = run.fingerprint(wanted.point)
    if (wanted.model, wanted.fingerprint) == (run.model, fingerprint):
        points = (point for point in crash_points(run.trace, run.model) if point.index == wanted.point >= run.since)
        state = next((State(run, point, loss) for point in points if (loss := _loss(point, wanted))), None)
    if state is None:
        same_ops = run.trace.turns and fingerprint[:4] == wanted.fingerprint[:4] and fingerprint != wanted.fingerprint
        raise ran_in_another_order(wanted) if same_ops else has_changed(wanted)
    return state


def ran_in_another_order(wanted: CrashId) -> TraceChanged:
    """Return the error for a replay id of a run whose threads had their turns in an order that they did not keep."""
    return TraceChanged(
        f"The threads of the run did not have their turns in the order that '{wanted}' was made for, so that the disk "
        "cannot be rebuilt. The code need not have changed: something else decides who goes first, such as the time or "
        "a server. Replay it again, or run the test without --wfstate-replay."
    )


def has_changed(wanted: CrashId | FailedId) -> TraceChanged:
    """Return the error for a replay id that belongs to another run."""
    return TraceChanged(
        f"The run differs from the one that '{wanted}' was made for: the code or the test has changed since, so that "
        "the disk cannot be rebuilt. Run the test without --wfstate-replay."
    )


def _loss(point: CrashPoint, wanted: CrashId) -> DiskLoss | None:
    loss: list[list[tuple[int, int]]] = [[] for _ in point.parts]
    for part, axis, position in wanted.losses:
        if part >= len(loss) or axis >= len(point.parts[part].axes) or position > point.parts[part].last(axis):
            return None
        loss[part].append((axis, position))
    return tuple(map(tuple, loss))


def in_rotation(runs: Sequence[Iterator[State]]) -> Iterator[State]:
    """Yield the first state of each run, then the second of each, and so on."""
    waiting = list(runs)
    while waiting:
        for states in list(waiting):
            state = next(states, None)
            if state is None:
                waiting.remove(states)
            else:
                yield state


def _hash(shape: Any) -> str:
    return hashlib.sha256(repr(shape).encode()).hexdigest()[:8]


def _of(name: str, items: Sequence[Item], strands: Sequence[str]) -> list[Item]:
    """Return the items of one strand."""
    return [item for item, strand in zip(items, strands, strict=True) if strand == name]


def _shapes(items: Iterable[Item]) -> Iterator[tuple[Any, ...]]:
    """Yield what counts of each item in a fingerprint."""
    nodes: dict[Node | None, Node | None] = {None: None, HOME: HOME, OUTSIDE: OUTSIDE}
    names: dict[tuple[Any, str], int] = {}
    for item in items:
        known = [nodes.setdefault(getattr(item, name, None), len(nodes)) for name in _NODES]
        used = [
            names.setdefault((getattr(item, folder), getattr(item, name)), len(names))
            for folder, name in (("folder", "name"), ("new_folder", "new_name"))
            if hasattr(item, folder)
        ]
        pages = len(item.data) // PAGE if isinstance(item, Write) else 0
        yield type(item).__name__, pages, *known, *used, *(getattr(item, name, None) for name in _DETAILS)
