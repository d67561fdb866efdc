"""Linearizability, for any reference: a search for an order of the calls that explains every result.

The algorithm is that of Wing and Gong with Lowe's memoisation: build the order from the front; of the calls that could
come next, try one whose result the reference allows; never visit the same set of calls in the same state twice. A call
without a result may be left out, or may stand anywhere between its beginning and its client's death.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from pytest_wfstate.oracle.history import Entry, Forgotten

_MOST_SHOWN = 12  # dead ends
_COST_OF_A_STEP = 50  # of the reference, where what is known costs 1
_MOST_COST = 600_000  # of the search for few calls: some seconds

State = TypeVar("State", bound=Hashable)
Order = tuple["Order", int] | tuple[()]
"""The last call of an order, behind the order before it: orders that begin alike share that."""


class Reference(Protocol[State]):
    """What the calls should have done, one after the other."""

    def start(self) -> State:
        """Give the state before the first call."""

    def step(self, state: State, entry: Entry, /) -> Iterable[State]:
        """Give every state that this call can lead to with the outcome it had; none if it cannot have had it.

        Where there is no result to explain (`entry.has_result` is false), any that the call can have will do.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Unexplained:
    """No order of the calls explains what came of them."""

    entries: tuple[Entry, ...]
    """Calls of which no order explains the results, whatever the others returned; as few as could be found."""
    dead_ends: tuple[tuple[tuple[Entry, ...], Entry], ...]
    """Orders that were tried, each with the first call whose result contradicts it."""

    def __str__(self) -> str:
        lines = ["no order of these calls explains their results:"]
        lines += [f"  {entry}" for entry in self.entries]
        for order, wrong in self.dead_ends:
            shown = [f"{entry.client}'s {entry.name}" for entry in order[-3:]] or ["nothing"]
            more = f"{len(order) - 3} other calls, then " if len(order) > 3 else ""
            tried = more + ", then ".join(shown)
            lines.append(f"  after {tried}: {wrong.client}'s {wrong.name} cannot have {_outcome(wrong)}")
        return "\n".join(lines)


def check(entries: Iterable[Entry], reference: Reference[Any]) -> Unexplained | None:
    """Look for an order that explains the history; give what cannot be explained, or None if all can."""
    ordered = sorted(entries, key=lambda entry: entry.begin)
    steps = _Steps(reference)
    if _OrderSearch(ordered, steps).succeeds():
        return None
    core = _Core(ordered, steps)
    kept = core.smallest()
    return Unexplained(tuple(ordered[at] for at in sorted(kept)), tuple(core.search(kept).dead_ends))


class _Steps:
    """The answers of a reference about calls that outlive it, each of which is asked for once."""

    def __init__(self, reference: Reference[Any]) -> None:
        self._reference = reference
        self._known: dict[tuple[int, Hashable], list[Hashable]] = {}
        self.cost = 0

    def start(self) -> Hashable:
        """Give the state before the first call."""
        return self._reference.start()  # type: ignore[no-any-return]

    def __call__(self, state: Hashable, entry: Entry) -> list[Hashable]:
        """Give every state that this call can lead to."""
        key = (id(entry), state)
        self.cost += 1
        if key not in self._known:
            self.cost += _COST_OF_A_STEP
            self._known[key] = list(self._reference.step(state, entry))
        return self._known[key]


class _Core:
    """The search for few calls whose results contradict each other, by bisection (QuickXplain).

    A result that is forgotten leaves more orders to try. Once that has cost too much, what is not known to be needless
    is kept: then there are more calls than there need be, and still no order explains them.
    """

    def __init__(self, entries: Sequence[Entry], steps: _Steps) -> None:
        self._entries = entries
        self._steps = steps
        self._forgotten = [dataclasses.replace(entry, outcome=Forgotten()) for entry in entries]
        self._most = steps.cost + _MOST_COST

    def smallest(self) -> list[int]:
        """Give calls of which none can be forgotten: then the rest would be explained."""
        return self._needed([], [], [at for at, entry in enumerate(self._entries) if entry.has_result])

    def search(self, known: Iterable[int]) -> _OrderSearch:
        """Search with only these results known: all other calls happened in their time, and returned whatever."""
        kept = set(known)
        entries = [
            entry if at in kept or not entry.has_result else self._forgotten[at]
            for at, entry in enumerate(self._entries)
        ]
        return _OrderSearch(entries, self._steps, self._most).searched()

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
    """One search over calls in the order of their beginnings. Above a cost of `most` it is given up."""

    def __init__(self, entries: Sequence[Entry], steps: _Steps, most: float = math.inf) -> None:
        self._entries = entries
        self._steps = steps
        self._most = most
        self._all = sum(1 << at for at, entry in enumerate(entries) if entry.must_have_happened)
        self.dead_ends: list[tuple[tuple[Entry, ...], Entry]] = []
        self.failed = False
        """Whether it was seen that no order explains everything."""

    def searched(self) -> _OrderSearch:
        """Search, and keep the answer in `failed`."""
        self.failed = not self.succeeds() and self._steps.cost <= self._most
        return self

    def succeeds(self) -> bool:
        """Tell whether some order was found that explains everything."""
        start = self._steps.start()
        seen: set[tuple[int, Hashable]] = {(0, start)}
        # A frame: what was done, the latest beginning among it, the state, and the order.
        stack: list[tuple[int, float, Hashable, Order]] = [(0, -math.inf, start, ())]
        while stack and self._steps.cost <= self._most:
            done, latest, state, order = stack.pop()
            if done & self._all == self._all:
                return True
            frames: list[tuple[int, float, Hashable, tuple[Order, int]]] = []
            for at in self._next(done, latest):
                entry = self._entries[at]
                states = self._steps(state, entry)
                if not states and entry.has_result:
                    self._note(order, at)
                for next_state in states:
                    key = (done | 1 << at, next_state)
                    if key not in seen:
                        seen.add(key)
                        frames.append((key[0], max(latest, entry.begin), next_state, (order, at)))
            # Those that returned first are tried first: they are most often right.
            frames.sort(key=lambda frame: self._entries[frame[3][1]].end, reverse=True)
            stack += frames
        return False

    def _next(self, done: int, latest: float) -> Iterable[int]:
        """Give the calls that can be the next in the order: begun before any other that is left has ended."""
        first_end = math.inf
        at = ((~done & (done + 1)).bit_length()) - 1  # the first that is not done
        while at < len(self._entries):
            entry = self._entries[at]
            if entry.begin > first_end:
                return
            if not done >> at & 1 and entry.until >= latest:
                yield at
                if entry.must_have_happened:
                    first_end = min(first_end, entry.end)
            at += 1

    def _note(self, order: Order, wrong: int) -> None:
        if len(self.dead_ends) < _MOST_SHOWN:
            self.dead_ends.append((tuple(self._entries[at] for at in _flat(order)), self._entries[wrong]))


def _flat(order: Order) -> list[int]:
    found: list[int] = []
    while order:
        order, at = order
        found.append(at)
    return found[::-1]


def _outcome(entry: Entry) -> str:
    return str(entry.outcome).replace("-> ", "returned ")
