"""Linearizability, for any reference: a search for an order of the calls that explains every result.

The algorithm is that of Wing and Gong with Lowe's memoisation: build the order from the front; of the calls that can be
next, try one whose result the reference allows; never visit the same set of calls in the same state twice. A call
without a result may be left out, or may take effect anywhere between its beginning and its client's death.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from pytest_wfstate.oracle.history import Entry, Forgotten

_MOST_SHOWN = 12  # dead ends
_STEP_COST = 50  # of the reference, where a remembered step costs 1
_MOST_COST = 600_000  # of the search for few calls: several seconds

State = TypeVar("State", bound=Hashable)
Order = tuple["Order", int] | tuple[()]
"""An order as its last call and the order before it: orders with the same beginning share it."""


class Reference(Protocol[State]):
    """What the calls should do, one after the other."""

    def start(self) -> State:
        """Return the state before the first call."""

    def step(self, state: State, entry: Entry, /) -> Iterable[State]:
        """Return every state that this call can lead to with its outcome; none if that outcome is impossible.

        Where there is no result to explain (`entry.has_result` is false), any result is possible.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class DeadEnd:
    """An order that was tried, from some state, and the first call whose result contradicts it."""

    start: Any
    order: tuple[Entry, ...]
    wrong: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class Unexplained:
    """Results that no order of the calls explains."""

    entries: tuple[Entry, ...]
    """Calls whose results no order explains, whatever the other calls returned; as few as were found."""
    dead_ends: tuple[DeadEnd, ...]


def check(entries: Iterable[Entry], reference: Reference[Any]) -> Unexplained | None:
    """Search for an order that explains the history; return what cannot be explained, or None if all can."""
    return Explanation(entries, reference, [reference.start()]).contradiction()


class Explanation:
    """The orders that explain a history which began in one of some states.

    They are searched for when they are asked for: most often the first one is enough, and there may be very many. The
    search is abandoned above a cost of `most`.
    """

    def __init__(
        self, entries: Iterable[Entry], reference: Reference[Any], starts: Iterable[Any], most: float = math.inf
    ) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.begin)
        self._steps = _Steps(reference)
        self._starts: list[Any] = []
        self._search = _OrderSearch(self._entries, self._steps, self._remembered(starts), most)
        self._ends: list[Any] = []

    @property
    def holds(self) -> bool:
        """Whether there is one."""
        return any(True for _ in self.states())

    @property
    def is_abandoned(self) -> bool:
        """Whether some orders have not been tried, and never will be."""
        return self._search.is_abandoned

    def states(self) -> Iterator[Any]:
        """Yield the different states that they can lead to."""
        for number in itertools.count():
            if number == len(self._ends):
                self._ends += itertools.islice(self._search.ends, 1)
            if number == len(self._ends):
                return
            yield self._ends[number]

    def contradiction(self) -> Unexplained | None:
        """Return what cannot be explained, or None if all can."""
        if self.holds:
            return None
        core = _Core(self._entries, self._steps, self._starts)
        kept = core.smallest()
        dead_ends = core.search(kept).dead_ends
        return Unexplained(tuple(self._entries[index] for index in sorted(kept)), tuple(dead_ends))

    def _remembered(self, starts: Iterable[Any]) -> Iterator[Any]:
        for start in starts:
            self._starts.append(start)
            yield start


class _Steps:
    """The steps of a reference, each asked for once. The entries outlive it."""

    def __init__(self, reference: Reference[Any]) -> None:
        self._reference = reference
        self._known: dict[tuple[int, Hashable], list[Hashable]] = {}
        self.cost = 0

    def __call__(self, state: Hashable, entry: Entry) -> list[Hashable]:
        """Return every state that this call can lead to."""
        key = (id(entry), state)
        self.cost += 1
        if key not in self._known:
            self.cost += _STEP_COST
            self._known[key] = list(self._reference.step(state, entry))
        return self._known[key]


class _Core:
    """A search for few calls whose results contradict each other, by bisection (QuickXplain).

    Forgetting a result leaves more orders to try. Once that has cost too much, every call not known to be needless is
    kept: more calls than necessary, but still no order explains them.
    """

    def __init__(self, entries: Sequence[Entry], steps: _Steps, starts: Sequence[Any]) -> None:
        self._entries = entries
        self._steps = steps
        self._starts = starts
        self._forgotten = [dataclasses.replace(entry, outcome=Forgotten()) for entry in entries]
        self._most = steps.cost + _MOST_COST

    def smallest(self) -> list[int]:
        """Return calls of which none can be forgotten without the rest being explained."""
        return self._needed([], [], [index for index, entry in enumerate(self._entries) if entry.has_result])

    def search(self, known: Iterable[int]) -> _OrderSearch:
        """Search with only these results known: every other call took effect in its time and returned anything."""
        kept = set(known)
        entries = [
            entry if index in kept or not entry.has_result else self._forgotten[index]
            for index, entry in enumerate(self._entries)
        ]
        search = _OrderSearch(entries, self._steps, iter(self._starts), self._most)
        search.fails = not any(True for _ in search.ends) and not search.is_abandoned
        return search

    def _needed(self, known: list[int], added: list[int], among: list[int]) -> list[int]:
        if added and self.search(known).fails:
            return []
        if len(among) == 1:
            return among
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = self._needed(known + first, first, second)
        of_first = self._needed(known + of_second, of_second, first)
        return of_first + of_second


class _Frame(NamedTuple):
    """A place in the search."""

    start: Any
    done: int
    """Which calls are done, as bits."""
    latest: float
    """The latest beginning among them."""
    state: Any
    order: Order


class _OrderSearch:
    """One search over calls in the order of their beginnings. It is abandoned above a cost of `most`."""

    def __init__(self, entries: Sequence[Entry], steps: _Steps, starts: Iterator[Any], most: float) -> None:
        self._entries = entries
        self._steps = steps
        self._most = most
        self._all = sum(1 << index for index, entry in enumerate(entries) if entry.must_have_happened)
        self._seen: set[tuple[int, Hashable]] = set()
        self.dead_ends: list[DeadEnd] = []
        self.is_abandoned = False
        self.fails = False
        """Whether it has proved that no order explains everything."""
        self.ends = self._search(starts)
        """The different states that orders lead to which explain everything."""

    def _search(self, starts: Iterator[Any]) -> Iterator[Any]:
        ends: set[Hashable] = set()
        for start in starts:
            is_new = (0, start) not in self._seen
            self._seen.add((0, start))
            stack = [_Frame(start, 0, -math.inf, start, ())] if is_new else []
            while stack:
                if self._steps.cost > self._most:
                    self.is_abandoned = True
                    return
                frame = stack.pop()
                if frame.done & self._all == self._all and frame.state not in ends:
                    ends.add(frame.state)
                    yield frame.state
                stack += self._after(frame)

    def _after(self, frame: _Frame) -> list[_Frame]:
        """Return the frames that one call more leads to, unless they have been seen."""
        frames: list[tuple[float, _Frame]] = []
        for index in self._next(frame.done, frame.latest):
            entry = self._entries[index]
            states = self._steps(frame.state, entry)
            if not states and entry.has_result:
                self._note(frame, index)
            for state in states:
                key = (frame.done | 1 << index, state)
                if key not in self._seen:
                    self._seen.add(key)
                    latest = max(frame.latest, entry.begin)
                    frames.append((entry.end, _Frame(frame.start, key[0], latest, state, (frame.order, index))))
        # Those that returned first are tried first: most often that is the order.
        return [after for _, after in sorted(frames, key=lambda pair: pair[0], reverse=True)]

    def _next(self, done: int, latest: float) -> Iterable[int]:
        """Yield the calls that can be next in the order: those that began before any other that is left ended."""
        first_end = math.inf
        index = ((~done & (done + 1)).bit_length()) - 1  # the first that is not done
        while index < len(self._entries):
            entry = self._entries[index]
            if entry.begin > first_end:
                return
            if not done >> index & 1 and entry.until >= latest:
                yield index
                if entry.must_have_happened:
                    first_end = min(first_end, entry.end)
            index += 1

    def _note(self, frame: _Frame, wrong: int) -> None:
        if len(self.dead_ends) < _MOST_SHOWN:
            order = tuple(self._entries[index] for index in _flat(frame.order))
            self.dead_ends.append(DeadEnd(frame.start, order, self._entries[wrong]))


def _flat(order: Order) -> list[int]:
    indices: list[int] = []
    while order:
        order, index = order
        indices.append(index)
    return indices[::-1]
