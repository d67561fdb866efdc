"""The frontier of a search: the schedules still to run, and the keys of what was seen, both kept small.

There are far more schedules to run than there were run. Each deviates from one that was run, at one step, so it is kept
as that step and a reference to the choices that they share.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from array import array
from collections.abc import Iterator

from pytest_wfstate.faults.replay_id import Choices

SEEN = 25_000  # keys of a generation


@dataclasses.dataclass(frozen=True, slots=True)
class Deviation:
    """A schedule that deviates from one that was run: at which step, and who makes it instead."""

    choices: array[int]
    """Of the schedule that was run."""
    position: int
    client: int
    cost: int
    """How many preemptions it has."""


@dataclasses.dataclass(slots=True)
class _Deviations:
    """All deviations of the same cost from one schedule: pairs of a position and a client."""

    choices: array[int]
    pairs: array[int] = dataclasses.field(default_factory=lambda: array("i"))
    taken: int = 0


class Frontier:
    """The schedules to run: fewest preemptions first, then in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Deviations]] = []
        self._open: dict[int, _Deviations] = {}
        self._order: Iterator[int] = itertools.count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, deviation: Deviation) -> None:
        """Add a schedule."""
        deviations = self._open.get(deviation.cost)
        if deviations is None or deviations.choices is not deviation.choices:
            deviations = self._open[deviation.cost] = _Deviations(deviation.choices)
            heapq.heappush(self._heap, (deviation.cost, next(self._order), deviations))
        deviations.pairs.extend((deviation.position, deviation.client))
        self._length += 1

    def pop(self) -> tuple[int, Choices]:
        """Remove the next schedule; return how many preemptions it has, and its choices."""
        self._open.clear()
        cost, _, deviations = self._heap[0]
        position, client = deviations.pairs[deviations.taken : deviations.taken + 2]
        deviations.taken += 2
        if deviations.taken == len(deviations.pairs):
            heapq.heappop(self._heap)
        self._length -= 1
        return cost, (*deviations.choices[:position], client)


class SeenKeys:
    """The lowest cost at which each key was seen. It forgets the oldest, so that a long search does not grow.

    What it has forgotten is run again, which takes time but misses nothing.
    """

    def __init__(self) -> None:
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def lower(self, key: int, cost: int) -> int | None:
        """Note a key that is seen at some cost; return the lowest cost at which it was seen before, if it was."""
        before = self._young.get(key, self._old.get(key))
        self._young[key] = cost if before is None else min(before, cost)
        if len(self._young) >= SEEN:
            self._young, self._old = {}, self._young
        return before
