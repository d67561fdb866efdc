"""Linearizability, for any reference: a search for an order of the calls that explains every result.

The algorithm is that of Wing and Gong with Lowe's memoisation: build the order from the front; of the calls that can be
next, try one whose result the reference allows; never visit the same set of calls in the same state twice. A call
without a result may be left out, or may take effect anywhere between its beginning and its client's death.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

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
class Unexplained:
    """Results that no order of the calls explains."""

    entries: tuple[Entry, ...]
    """Calls whose results no order explains, whatever the other calls returned; as few as were found."""
    dead_ends: tuple[tuple[tuple[Entry, ...], Entry], ...]
    """Orders that were tried, each with the first call whose result contradicts it."""


def check(entries: Iterable[Entry], reference: Reference[Any]) -> Unexplained | None:
    """Search for an order that explains the history; return what cannot be explained, or None if all can."""
    ordered = sorted(entries, key=lambda entry: entry.begin)
    steps = _Steps(reference)
    if _OrderSearch(ordered, steps).succeeded:
        return None
    core = _Core(ordered, steps)
    kept = core.smallest()
    return Unexplained(tuple(ordered[index] for index in sorted(kept)), tuple(core.search(kept).dead_ends))


class _Steps:
    """The steps of a reference, each asked for once. The entries outlive it."""

    def __init__(self, reference: Reference[Any]) -> None:
        self._reference = reference
        self._known: dict[tuple[int, Hashable], list[Hashable]] = {}
        self.cost = 0

    def start(self) -> Hashable:
        """Return the state before the first call."""
        return self._reference.start()  # type: ignore[no-any-return]

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

    def __init__(self, entries: Sequence[Entry], steps: _Steps) -> None:
        self._entries = entries
        self._steps = steps
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
        return _OrderSearch(entries, self._steps, self._most)

    def _needed(self, known: list[int], added: list[int], among: list[int]) -> list[int]:
        if added and self.search(known).failed:
            return []
        if len(among) == 1:
            return among
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = self._needed(known + first, first, second)
        of_first = self._needed(known + of_second, of_second, first)
        return of_first + of_second


class _OrderSearch:
    """One search over calls in the order of their beginnings. It is abandoned above a cost of `most`."""

    def __init__(self, entries: Sequence[Entry], steps: _Steps, most: float = math.inf) -> None:
        self._entries = entries
        self._steps = steps
        self._most = most
        self._all = sum(1 << index for index, entry in enumerate(entries) if entry.must_have_happened)
        self.dead_ends: list[tuple[tuple[Entry, ...], Entry]] = []
        self.succeeded = self._search()
        self.failed = not self.succeeded and steps.cost <= most
        """Whether the search proved that no order explains everything."""

    def _search(self) -> bool:
        start = self._steps.start()
        seen: set[tuple[int, Hashable]] = {(0, start)}
        # A frame: the calls that are done, the latest beginning among them, the state, and the order.
        stack: list[tuple[int, float, Hashable, Order]] = [(0, -math.inf, start, ())]
        while stack and self._steps.cost <= self._most:
            done, latest, state, order = stack.pop()
            if done & self._all == self._all:
                return True
            frames: list[tuple[int, float, Hashable, tuple[Order, int]]] = []
            for index in self._next(done, latest):
                entry = self._entries[index]
                states = self._steps(state, entry)
                if not states and entry.has_result:
                    self._note(order, index)
                for next_state in states:
                    key = (done | 1 << index, next_state)
                    if key not in seen:
                        seen.add(key)
                        frames.append((key[0], max(latest, entry.begin), next_state, (order, index)))
            # Those that returned first are tried first: most often that is the order.
            frames.sort(key=lambda frame: self._entries[frame[3][1]].end, reverse=True)
            stack += frames
        return False

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

    def _note(self, order: Order, wrong: int) -> None:
        if len(self.dead_ends) < _MOST_SHOWN:
            self.dead_ends.append((tuple(self._entries[index] for index in _flat(order)), self._entries[wrong]))


def _flat(order: Order) -> list[int]:
    indices: list[int] = []
    while order:
        order, index = order
        indices.append(index)
    return indices[::-1]
