"""States: the distinct disks that crashes of a run can leave, in a fixed order, the most telling first."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pytest_wfstate.faults.bounds import MOST_LOSSES, Model
from pytest_wfstate.faults.disk.home import Content
from pytest_wfstate.faults.disk.losses import CrashPoint, DiskLoss
from pytest_wfstate.faults.disk.models import crash_points, last_point
from pytest_wfstate.faults.replay_id import CrashId, FailedId, ReplayId, TraceChanged
from pytest_wfstate.faults.source import SourceLine
from pytest_wfstate.faults.trace.log import OUTSIDE
from pytest_wfstate.faults.trace.ops import HOME, OPS, PAGE, Ack, Effect, Item, Node, Trace, Tree, Write

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

Held = tuple[Content, Mapping[str, str]]
"""What is under each path, and the links among them."""

_NODES = ("node", "folder", "new_folder", "replaced")
_DETAILS = ("kind", "data_only", "failed", "world", "returned")
_LOOKS = 50  # before the clock is asked


@dataclasses.dataclass(frozen=True, slots=True)
class InjectedFailure:
    """An op that was made to fail in a run, and what became of that."""

    kind: str
    error: str
    number: int
    """Which op of the run it was, counted from 1."""
    told: str
    """What failed, and how, in words."""
    reaction: str
    """What the workload made of it, in words."""
    where: SourceLine | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CrashedRun:
    """What led to a disk: one run, or a run, its crash, and the recovery that crashed as well."""

    trace: Trace
    model: Model
    worlds: tuple[Any, ...]
    """The state of each world at the start."""
    since: int = 0
    """The first cut that belongs to the last run."""
    first: State | None = None
    """The crash before it, if the last run is a recovery."""
    injected: InjectedFailure | None = None
    """What failed in the run, if something was made to."""
    ended: bool = False
    """Whether the run came to its end: then there was no crash."""

    def acked(self, point: int) -> list[Any]:
        """Give what had been acknowledged."""
        return [item.value for item in self.trace.items[:point] if isinstance(item, Ack)]

    def effects(self, point: int) -> list[str]:
        """Give what had been done to the outside world."""
        return [item.call for item in self.trace.items[:point] if isinstance(item, Effect)]

    def worlds_at(self, point: int) -> list[Any]:
        """Give the state that each world was in."""
        states = list(self.worlds)
        for item in self.trace.items[:point]:
            if isinstance(item, Effect) and item.world < len(states):  # others were made in the run itself
                states[item.world] = item.state
        return states

    def fingerprint(self) -> str:
        """Give a word for the shape of the trace, the same in every run that does the same ops.

        What files hold and what names read like may differ between two runs of the same code: there are times in them,
        and random parts. So a file or a name stands in it by when it was first used. The same name again is told from
        another one, and a name that is taken from one that is free. What is not told is a program that calls all its
        files by other names and does the same to them.
        """
        shape = [*_shapes(self.trace.items), self.injected and self.injected.kind]
        return hashlib.sha256(repr(shape).encode()).hexdigest()[:8]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One disk that a crash can leave."""

    run: CrashedRun
    point: CrashPoint
    choice: DiskLoss

    def tree(self) -> Tree:
        """Give what is on the disk."""
        return self.point.tree(self.choice)

    def lost(self) -> list[int]:
        """Give the items that are lost, in whole or in part."""
        return self.point.lost(self.choice)

    def at(self, point: CrashPoint) -> State:
        """Give the state at another cut with the same losses, as far as they are possible there."""
        return dataclasses.replace(self, point=point, choice=point.losing(self.point, self.choice, lambda index: index))

    def with_position(self, part: int, axis: int, position: int) -> State:
        """Give the state with one dial set anew."""
        setting = (*self.choice[part][:axis], position, *self.choice[part][axis + 1 :])
        return dataclasses.replace(self, choice=(*self.choice[:part], setting, *self.choice[part + 1 :]))

    def replay_id(self, ordinal: int) -> ReplayId:
        """Give the word by which this state is found again in another run of the test."""
        injected = self.run.injected
        failed = FailedId(injected.error, injected.number, self.run.fingerprint()) if injected else None
        return ReplayId(ordinal, () if self.run.ended else self.ids(), failed)

    def ids(self) -> tuple[CrashId, ...]:
        """Give the words for its crashes."""
        turned = (
            (part, axis, position)
            for part, setting in enumerate(self.choice)
            for axis, position in enumerate(setting)
            if position
        )
        last = CrashId(self.run.model, self.point.index, tuple(turned), self.run.fingerprint())
        return (*self.run.first.ids(), last) if self.run.first else (last,)


@dataclasses.dataclass(slots=True)
class Counters:
    """How much there was to see, and how much was seen."""

    possible: int = 0
    looked: int = 0
    distinct: int = 0
    seen: set[Any] = dataclasses.field(default_factory=set)
    all_seen: int = 0
    is_over: bool = False
    """Whether there was no time left to look for more."""
    time_left: Callable[[], bool] = lambda: True
    most: float = MOST_LOSSES
    """How many ways to lose of one file, or of the names, at one cut are looked at."""
    _markers: dict[int, Item] = dataclasses.field(default_factory=dict)
    _last: tuple[State, Held] | None = None

    def content(self, state: State) -> Held:
        """Give what is on the disk, and its links. The last is kept: it was looked at to tell whether it is new."""
        if self._last is None or self._last[0] is not state:
            tree = state.tree()
            self._last = (state, (tree.content(), tree.links()))
        return self._last[1]

    def promises(self, markers: Iterable[Item]) -> tuple[int, ...]:
        """Give a word for the markers before a cut. They are kept, so that no other ever has the same word."""
        found = {id(item): item for item in markers}
        self._markers |= found
        return tuple(found)

    def may_look(self) -> bool:
        """Tell whether there is time for one more disk, and count it: one that is new may be far away."""
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
        """Take note that everything that is possible at a cut was looked at."""
        self.all_seen += point.possible

    @property
    def skipped(self) -> int:
        """How many ways to lose were not looked at, at the most."""
        return self.possible - max(self.all_seen, min(self.looked, self.possible))


def end_state(run: CrashedRun) -> State:
    """Give the disk of a run that came to its end."""
    point = last_point(run.trace, "kill")
    return State(dataclasses.replace(run, model="kill", since=point.index), point, point.kept)


def distinct_states(run: CrashedRun, counters: Counters) -> Iterator[State]:
    """Give each disk once, with the same promises made: all prefixes first, then one loss each, then the rest."""
    at = [point for point in crash_points(run.trace, run.model, counters.most) if point.index >= run.since]
    counters.possible += sum(point.possible for point in at)
    waiting = [(point, itertools.groupby(point.choices(), key=operator.itemgetter(0))) for point in at]
    while waiting and not counters.is_over:
        # A round takes the next class of every cut: so all cuts come to their single losses before any to its pairs.
        going = []
        for point, classes in waiting:
            group = next(classes, None)
            if group is not None:
                going.append((point, classes))
                yield from _new(run, point, (choice for _, choice in group[1]), counters)
            elif point.is_complete():
                counters.finished(point)
        waiting = going


def find(run: CrashedRun, wanted: CrashId) -> State:
    """Find the state that an id stands for.

    Raises:
        TraceChanged: the run did not do what it did when the id was made.
    """
    state = None
    if (wanted.model, wanted.fingerprint) == (run.model, run.fingerprint()):
        found = (point for point in crash_points(run.trace, run.model) if point.index == wanted.point >= run.since)
        state = next((State(run, point, choice) for point in found if (choice := _turned(point, wanted))), None)
    if state is None:
        raise has_changed(wanted)
    return state


def has_changed(wanted: CrashId | FailedId) -> TraceChanged:
    """Make the error that says that a replay id is of another run."""
    return TraceChanged(
        f"the run does not do what it did when '{wanted}' was made: the code or the test has changed since. "
        "The disk of then cannot be found. Run the test without --wfstate-replay."
    )


def _turned(point: CrashPoint, wanted: CrashId) -> DiskLoss | None:
    choice = [list(setting) for setting in point.kept]
    for part, axis, position in wanted.turned:
        if part >= len(choice) or axis >= len(choice[part]) or position >= len(point.parts[part].axes[axis].positions):
            return None
        choice[part][axis] = position
    return tuple(map(tuple, choice))


def _new(run: CrashedRun, point: CrashPoint, found: Iterator[DiskLoss], counters: Counters) -> Iterator[State]:
    promises = counters.promises(item for item in run.trace.items[: point.index] if not isinstance(item, OPS))
    for choice in found:
        if not counters.may_look():
            return
        state = State(run, point, choice)
        key = (_digest(*counters.content(state)), promises)
        if key not in counters.seen:
            counters.seen.add(key)
            counters.distinct += 1
            yield state


def _digest(content: Content, links: Mapping[str, str]) -> bytes:
    """Give a word for what a disk holds: to keep it all, for each state, would fill the memory."""
    digest = hashlib.blake2b(digest_size=16)
    for path, held in content.items():
        digest.update(repr((path, held if isinstance(held, str) else held and len(held))).encode())
        if isinstance(held, bytes):
            digest.update(held)
    digest.update(repr(links).encode())
    return digest.digest()


def _shapes(items: Iterable[Item]) -> Iterator[tuple[Any, ...]]:
    """Give what counts of each item in a fingerprint."""
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
