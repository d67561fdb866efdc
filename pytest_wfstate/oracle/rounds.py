"""Rounds: a history too long to be judged at once, of which one part after the other is added and judged.

Between two rounds no call is in progress. What a round leaves is where the next one starts: not one state but all that
explain the calls so far, since one of them alone may not explain what follows. They are found as they are needed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.errors import Violation, blamed
from pytest_wfstate.oracle.history import Entry
from pytest_wfstate.oracle.linearize import Explanation
from pytest_wfstate.oracle.model import ReferenceModel, ReferenceState
from pytest_wfstate.oracle.partition import is_divisible, shares
from pytest_wfstate.oracle.render import calls_around, impossible_results

__tracebackhide__ = True

MOST_STATES = 1_000  # that a round starts from
MOST_COST = 10_000_000  # of the search for an order of its calls
_ABANDONED = f"the search for an order of the calls was abandoned after {MOST_COST:,} steps"
_WHOLE: frozenset[Hashable] = frozenset(["everything"])


class TooManyOrders(Exception):
    """The search for an order of the calls was abandoned: neither an order nor a contradiction was found."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Calls that depend on the same ids, in all rounds so far."""

    ids: frozenset[Hashable]
    entries: tuple[Entry, ...]
    explanation: Explanation
    clients: Container[str]
    """Those that continue in the next round."""


class Rounds:
    """A history in rounds of calls such as these, divided by id if that is possible."""

    def __init__(self, model: ReferenceModel, calls: Iterable[Call] = ()) -> None:
        self._model = model
        self.is_divided = is_divisible(model.contract, calls)
        self._parts: list[_Part] = []

    @property
    def continues(self) -> bool:
        """Whether there is a part that a later round can add to."""
        return bool(self._parts)

    def add(self, entries: Sequence[Entry], *, own: Container[Hashable] = (), clients: Container[str] = ()) -> None:
        """Judge a round. No later one uses the ids in `own`; only `clients` keep their handles after it.

        Raises:
            Violation: the results are impossible in any order of the calls.
            TooManyOrders: that could not be decided.
        """
        parts = shares(entries, self._model.contract) if self.is_divided else [(set(_WHOLE), list(entries))]
        for ids, calls in parts:
            part = self._continued(frozenset(ids), calls, clients)
            if any(id_ not in own for id_ in part.ids):
                self._parts.append(part)

    def _continued(self, ids: frozenset[Hashable], calls: Sequence[Entry], clients: Container[str]) -> _Part:
        before = [part for part in self._parts if part.ids & ids]
        self._parts = [part for part in self._parts if not part.ids & ids]
        entries = [*itertools.chain.from_iterable(part.entries for part in before), *calls]
        if len(before) == 1:
            explanation = Explanation(calls, self._model, self._after(before[0]), MOST_COST)
        else:  # the states of two parts cannot be joined, but their calls can
            explanation = Explanation(entries, self._model, [self._model.start()], MOST_COST)
        try:
            holds = explanation.holds
        except RecursionError as error:  # each round before this one adds to the depth
            raise TooManyOrders("too many rounds before it can have left several states each") from error
        if not holds:
            self._report(explanation, entries)
        return _Part(ids.union(*(part.ids for part in before)), tuple(entries), explanation, clients)

    def _after(self, part: _Part) -> Iterator[ReferenceState]:
        for number, state in enumerate(part.explanation.states()):
            if number == MOST_STATES:
                raise TooManyOrders(f"more than {MOST_STATES:,} states explain the calls before it")
            yield self._model.with_handles_of(state, part.clients)
        if part.explanation.is_abandoned:
            raise TooManyOrders(_ABANDONED)

    def _report(self, explanation: Explanation, entries: Sequence[Entry]) -> None:
        if explanation.is_abandoned:
            raise TooManyOrders(_ABANDONED)
        contradiction = explanation.contradiction()
        assert contradiction is not None
        violation = impossible_results(contradiction, self._model)
        text = "\n".join([str(violation), *calls_around(contradiction.entries, entries)])
        raise blamed(Violation(text), violation.cause)
