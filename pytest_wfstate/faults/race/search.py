"""The search: every way in which a few clients can take turns, within a bound of preemptions."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.faults.race.conflicts import Footprint, Footprints
from pytest_wfstate.faults.race.schedule import Clients, ScheduleRun, TraceKeys
from pytest_wfstate.faults.replay_id import Choices, death_of


@dataclasses.dataclass(slots=True)
class ScheduleSearch:
    """All schedules within a bound, the fewest preemptions first, but for those that come to the same as another."""

    clients: Clients
    preemptions: int
    prune: bool = True
    runs: int = 0
    waiting: list[tuple[int, int, Choices]] = dataclasses.field(default_factory=list)
    """Schedules that are still to be run: how many preemptions each has, and its number."""
    _repeated: int = 0
    _order: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    _words: TraceKeys = dataclasses.field(default_factory=TraceKeys)
    _seen: dict[tuple[Any, int], int] = dataclasses.field(default_factory=dict)
    _footprints: Footprints = dataclasses.field(default_factory=Footprints)
    _parked: dict[Footprint, list[tuple[int, Choices]]] = dataclasses.field(default_factory=dict)
    """Schedules with a switch that does not matter, as far as is known: by the operation that it comes before."""

    @property
    def pruned(self) -> int:
        """How many schedules were left out, since they come to the same as one that was run."""
        return self._repeated + sum(map(len, self._parked.values()))

    def __iter__(self) -> Iterator[ScheduleRun]:
        self._add(0, ())
        while self.waiting:
            used, _, choices = heapq.heappop(self.waiting)
            run = self.clients.run(choices)
            self.runs += 1
            yield run
            self._branch(run, len(choices), used)

    def _add(self, cost: int, choices: Choices) -> None:
        heapq.heappush(self.waiting, (cost, next(self._order), choices))

    def _branch(self, run: ScheduleRun, begin: int, used: int) -> None:
        """Add the schedules that leave this one at some turn after its beginning was chosen."""
        footprints = self._footprints.add(run)
        self._unpark()
        for turn, word in enumerate(self._words.of(run.turns, begin), begin):
            last, enabled = run.choices[turn - 1] if turn else -1, run.enabled[turn]
            stopped = next((one for one in footprints[turn:] if one.client == last), None) if last in enabled else None
            for client in (*enabled, *map(death_of, run.mortal[turn] if run.mortal else ())):
                if client == last and used == self.preemptions:
                    continue  # who runs runs on; and who comes here later has no preemptions left to try another
                cost = used + (client >= 0 and last in enabled and client != last)
                if cost <= self.preemptions and self._is_new(word, client, cost, client == run.choices[turn]):
                    self._leave((*run.choices[:turn], client), cost, stopped if cost > used else None)

    def _is_new(self, word: Any, client: int, cost: int, is_this: bool) -> bool:
        """Tell whether it comes to something else if, after what the word stands for, a client goes on."""
        best = self._seen.get((word, client), cost + 1)
        self._seen[word, client] = min(best, cost)
        if not is_this and self.prune and best <= cost:
            self._repeated += 1
            return False
        return not is_this

    def _leave(self, branch: Choices, cost: int, stopped: Footprint | None) -> None:
        if stopped is None or not self.prune or self._footprints.may_conflict(stopped):
            self._add(cost, branch)
        else:
            self._parked.setdefault(stopped, []).append((cost, branch))

    def _unpark(self) -> None:
        """Add the switches that turn out to matter."""
        for footprint in [one for one in self._parked if self._footprints.may_conflict(one)]:
            for cost, branch in self._parked.pop(footprint):
                self._add(cost, branch)
