"""States: the distinct disks that crashes of a run can leave, in a fixed order, the most telling first."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.cut import Choice, Cut, Model
from pytest_wfstate.faults.models import cuts
from pytest_wfstate.faults.ops import OPS, PAGE, Ack, Effect, Item, Trace, Write


@dataclasses.dataclass(frozen=True, slots=True)
class Life:
    """What led to a crash: one run, or a run, its crash, and the recovery that crashed as well."""

    trace: Trace
    model: Model
    worlds: tuple[Any, ...]
    """The state of each world at the start."""
    since: int = 0
    """The first cut that belongs to the last run."""
    before: str = ""
    """The replay id of the crash before it."""

    def acked(self, cut: int) -> list[Any]:
        """Give what had been acknowledged."""
        return [item.value for item in self.trace.items[:cut] if isinstance(item, Ack)]

    def effects(self, cut: int) -> list[str]:
        """Give what had been done to the outside world."""
        return [item.call for item in self.trace.items[:cut] if isinstance(item, Effect)]

    def worlds_at(self, cut: int) -> list[Any]:
        """Give the state that each world was in."""
        states = list(self.worlds)
        for item in self.trace.items[:cut]:
            if isinstance(item, Effect):
                states[item.world] = item.state
        return states

    def fingerprint(self) -> str:
        """Give a word for the shape of the trace, the same in every run that does the same ops."""
        shape = [_shape(item) for item in self.trace.items]
        return hashlib.sha256(repr(shape).encode()).hexdigest()[:8]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One disk that a crash can leave."""

    life: Life
    cut: Cut
    choice: Choice

    def content(self) -> dict[str, bytes | str | None]:
        """Give what is on the disk."""
        return self.cut.tree(self.choice).content()

    def lost(self) -> list[int]:
        """Give the items that are lost, in whole or in part."""
        return self.cut.lost(self.choice)

    def with_position(self, part: int, dial: int, position: int) -> State:
        """Give the state with one dial set anew."""
        setting = (*self.choice[part][:dial], position, *self.choice[part][dial + 1 :])
        return dataclasses.replace(self, choice=(*self.choice[:part], setting, *self.choice[part + 1 :]))

    @property
    def replay(self) -> str:
        """A word that stands for this state, to be found again in another run."""
        turned = "_".join(
            f"{part}.{dial}.{position}"
            for part, setting in enumerate(self.choice)
            for dial, position in enumerate(setting)
            if position
        )
        return f"{self.life.before}{self.life.model}-{self.cut.index}-{turned or 0}-{self.life.fingerprint()}"


@dataclasses.dataclass(slots=True)
class Tally:
    """How much there was to see, and how much was seen."""

    possible: int = 0
    looked: int = 0
    distinct: int = 0
    seen: set[Any] = dataclasses.field(default_factory=set)
    all_seen: int = 0

    def finished(self, cut: Cut) -> None:
        """Take note that everything that is possible at a cut was looked at."""
        self.all_seen += cut.possible

    @property
    def skipped(self) -> int:
        """How many ways to lose were not looked at, at the most."""
        return self.possible - max(self.all_seen, min(self.looked, self.possible))


def distinct_states(life: Life, tally: Tally) -> Iterator[State]:
    """Give each disk once, with the same promises made: all prefixes first, then one loss each, then the rest."""
    at = [cut for cut in cuts(life.trace, life.model) if cut.index >= life.since]
    tally.possible += sum(cut.possible for cut in at)
    waiting = [(cut, itertools.groupby(cut.choices(), key=operator.itemgetter(0))) for cut in at]
    while waiting:
        # A round takes the next class of every cut: so all cuts come to their single losses before any to its pairs.
        going = []
        for cut, classes in waiting:
            group = next(classes, None)
            if group is not None:
                going.append((cut, classes))
                yield from _new(life, cut, (choice for _, choice in group[1]), tally)
            elif cut.is_complete():
                tally.finished(cut)
        waiting = going


def find(life: Life, replay: str) -> State:
    """Find the state that a replay id stands for.

    Raises:
        TraceChanged: the run did not do what it did when the id was made.
    """
    try:
        model, index, turned, fingerprint = replay.split("-")
        positions = [] if turned == "0" else [tuple(map(int, pair.split("."))) for pair in turned.split("_")]
        wanted = int(index)
    except ValueError:
        raise ValueError(f"{replay!r} is no replay id. Copy it from the end of a violation's report.") from None
    if fingerprint != life.fingerprint() or model != life.model:
        raise TraceChanged(
            f"the run does not do what it did when {replay!r} was made: the code or the test has changed since. "
            "The state of then cannot be found. Run the test without --wfstate-replay."
        )
    cut = next(cut for cut in cuts(life.trace, life.model) if cut.index == wanted)
    choice = [list(setting) for setting in cut.kept]
    for part, dial, position in positions:
        choice[part][dial] = position
    return State(life, cut, tuple(map(tuple, choice)))


class TraceChanged(WfstateError, LookupError):
    """A replay id is of another run."""


def _new(life: Life, cut: Cut, found: Iterator[Choice], tally: Tally) -> Iterator[State]:
    promises = tuple(id(item) for item in life.trace.items[: cut.index] if not isinstance(item, OPS))
    for choice in found:
        tally.looked += 1
        state = State(life, cut, choice)
        key = (frozenset(state.content().items()), promises)
        if key not in tally.seen:
            tally.seen.add(key)
            tally.distinct += 1
            yield state


def _shape(item: Item) -> tuple[Any, ...]:
    pages = len(item.data) // PAGE if isinstance(item, Write) else 0
    return type(item).__name__, getattr(item, "node", None), getattr(item, "world", None), pages
