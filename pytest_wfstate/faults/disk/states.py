"""States: the distinct disks that crashes of a run can leave, in a fixed order, likely bugs first."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pytest_wfstate.faults.bounds import MOST_LOSSES, Model
from pytest_wfstate.faults.disk.losses import CrashPoint, DiskLoss
from pytest_wfstate.faults.disk.models import crash_points, last_point
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.replay_id import CrashId, FailedId, ReplayId, TraceChanged
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.log import OUTSIDE
from pytest_wfstate.faults.trace.ops import HOME, OPS, PAGE, Ack, Effect, Item, Node, Trace, Tree, Write

__tracebackhide__ = True

Held = tuple[Content, Mapping[str, str]]
"""The content of a disk, and the links in it."""

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

    def fingerprint(self) -> str:
        """Return a hash of the shape of the trace, the same for every run that does the same ops.

        Contents and names contain times and random parts, which differ between runs of the same code. So a file or a
        name counts by when it was first used: whether it is used again, and whether it exists, matters; what it is
        called does not.
        """
        shape = [*_shapes(self.trace.items), self.injected and self.injected.kind]
        return hashlib.sha256(repr(shape).encode()).hexdigest()[:8]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One disk that a crash can leave."""

    run: CrashedRun
    point: CrashPoint
    loss: DiskLoss

    def tree(self) -> Tree:
        """Return what is on the disk."""
        return self.point.tree(self.loss)

    def lost(self) -> list[int]:
        """Return the items that are lost, in whole or in part."""
        return self.point.lost(self.loss)

    def torn(self) -> list[tuple[int, int, int]]:
        """Return the torn writes: the index, the page, and the number of bytes left there."""
        return self.point.torn(self.loss)

    def at(self, point: CrashPoint) -> State:
        """Return the state at another point with the same losses, as far as they are possible there."""
        return dataclasses.replace(self, point=point, loss=point.losing(self.point, self.loss, lambda index: index))

    def with_position(self, part: int, axis: int, position: int) -> State:
        """Return the state with another position on one axis."""
        part_loss = (*self.loss[part][:axis], position, *self.loss[part][axis + 1 :])
        return dataclasses.replace(self, loss=(*self.loss[:part], part_loss, *self.loss[part + 1 :]))

    def replay_id(self, ordinal: int) -> ReplayId:
        """Return the id that finds this state again in another run of the test."""
        injected = self.run.injected
        failed = FailedId(injected.error, injected.number, self.run.fingerprint()) if injected else None
        return ReplayId(ordinal, () if self.run.ended else self.ids(), failed)

    def ids(self) -> tuple[CrashId, ...]:
        """Return the ids of its crashes."""
        losses = (
            (part, axis, position)
            for part, part_loss in enumerate(self.loss)
            for axis, position in enumerate(part_loss)
            if position
        )
        last = CrashId(self.run.model, self.point.index, tuple(losses), self.run.fingerprint())
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
    """Whether the time ran out."""
    time_left: Callable[[], bool] = lambda: True
    most: float = MOST_LOSSES
    """How many losses of one file, or of the names, are tried at one crash point."""
    _markers: dict[int, Item] = dataclasses.field(default_factory=dict)
    _last: tuple[State, Held] | None = None

    def content(self, state: State) -> Held:
        """Return what is on the disk, and its links. The last one is cached: it was just compared with the others."""
        if self._last is None or self._last[0] is not state:
            tree = state.tree()
            self._last = (state, (tree.content(), tree.links()))
        return self._last[1]

    def promises(self, markers: Iterable[Item]) -> tuple[int, ...]:
        """Return a key for the markers before a crash point: their ids, which stay unique because they are kept."""
        by_id = {id(item): item for item in markers}
        self._markers |= by_id
        return tuple(by_id)

    def may_look(self) -> bool:
        """Whether there is time for one more disk, which is counted: the next distinct one may be far away."""
        if self.looked and self.looked % _LOOKS == 0 and not self.time_left():
            self.is_over = True
        self.looked += not self.is_over
        return not self.is_over

    def add_one(self) -> None:
        """Count a disk that was not derived from a trace."""
        self.possible += 1
        self.looked += 1
        self.distinct += 1
        self.all_seen += 1

    def finished(self, point: CrashPoint) -> None:
        """Count all that is possible at a crash point as tried."""
        self.all_seen += point.possible

    @property
    def skipped(self) -> int:
        """At most how many losses were not tried."""
        return self.possible - max(self.all_seen, min(self.looked, self.possible))


def end_state(run: CrashedRun) -> State:
    """Return the disk of an uninterrupted run."""
    point = last_point(run.trace, "kill")
    return State(dataclasses.replace(run, model="kill", since=point.index), point, point.kept)


def distinct_states(run: CrashedRun, counters: Counters) -> Iterator[State]:
    """Yield each pair of a disk and the promises made once: all prefixes first, then single losses, then the rest."""
    points = [point for point in crash_points(run.trace, run.model, counters.most) if point.index >= run.since]
    counters.possible += sum(point.possible for point in points)
    pending = [(point, itertools.groupby(point.losses(), key=operator.itemgetter(0))) for point in points]
    while pending and not counters.is_over:
        # A round takes the next rank of every point, so that all single losses are tried before any pair.
        unfinished = []
        for point, ranks in pending:
            group = next(ranks, None)
            if group is not None:
                unfinished.append((point, ranks))
                yield from _new(run, point, (loss for _, loss in group[1]), counters)
            elif point.is_complete():
                counters.finished(point)
        pending = unfinished


def find(run: CrashedRun, wanted: CrashId) -> State:
    """Return the state that an id refers to.

    Raises:
        TraceChanged: the run differs from the one that the id was made for.
    """
    state = None
    if (wanted.model, wanted.fingerprint) == (run.model, run.fingerprint()):
        points = (point for point in crash_points(run.trace, run.model) if point.index == wanted.point >= run.since)
        state = next((State(run, point, loss) for point in points if (loss := _loss(point, wanted))), None)
    if state is None:
        raise has_changed(wanted)
    return state


def has_changed(wanted: CrashId | FailedId) -> TraceChanged:
    """Return the error for a replay id that belongs to another run."""
    return TraceChanged(
        f"The run differs from the one that '{wanted}' was made for: the code or the test has changed since, so that "
        "the disk cannot be rebuilt. Run the test without --wfstate-replay."
    )


def _loss(point: CrashPoint, wanted: CrashId) -> DiskLoss | None:
    loss = [list(part_loss) for part_loss in point.kept]
    for part, axis, position in wanted.losses:
        if part >= len(loss) or axis >= len(loss[part]) or position >= len(point.parts[part].axes[axis].positions):
            return None
        loss[part][axis] = position
    return tuple(map(tuple, loss))


def _new(run: CrashedRun, point: CrashPoint, losses: Iterator[DiskLoss], counters: Counters) -> Iterator[State]:
    promises = counters.promises(item for item in run.trace.items[: point.index] if not isinstance(item, OPS))
    for loss in losses:
        if not counters.may_look():
            return
        state = State(run, point, loss)
        key = (_digest(*counters.content(state)), promises)
        if key not in counters.seen:
            counters.seen.add(key)
            counters.distinct += 1
            yield state


def _digest(content: Content, links: Mapping[str, str]) -> bytes:
    """Return a hash of what a disk holds: the contents of all states would fill the memory."""
    digest = hashlib.blake2b(digest_size=16)
    for path, data in content.items():
        digest.update(repr((path, data if isinstance(data, str) else data and len(data))).encode())
        if isinstance(data, bytes):
            digest.update(data)
    digest.update(repr(links).encode())
    return digest.digest()


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
