"""The search: all schedules of a few clients within a bound of preemptions, equivalent ones pruned."""

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
    """Runs all schedules within a bound, fewest preemptions first, except those equivalent to another."""

    clients: Clients
    preemptions: int
    prune: bool = True
    runs: int = 0
    waiting: list[tuple[int, int, Choices]] = dataclasses.field(default_factory=list)
    """Schedules still to run: how many preemptions each has, its number, and its choices."""
    _repeated: int = 0
    _order: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    _trace_keys: TraceKeys = dataclasses.field(default_factory=TraceKeys)
    _seen: dict[tuple[Any, int], int] = dataclasses.field(default_factory=dict)
    _footprints: Footprints = dataclasses.field(default_factory=Footprints)
    _parked: dict[Footprint, list[tuple[int, Choices]]] = dataclasses.field(default_factory=dict)
    """Schedules whose last switch matters to no other client, as far as is known, by the operation it precedes."""

    @property
    def pruned(self) -> int:
        """How many schedules were not run because they are equivalent to one that was."""
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
        """Add the schedules that deviate from this one after its chosen beginning."""
        footprints = self._footprints.add(run)
        self._unpark()
        for position, key in enumerate(self._trace_keys.of(run.steps, begin), begin):
            last, enabled = run.choices[position - 1] if position else -1, run.enabled[position]
            preempted = None
            if last in enabled:
                preempted = next((step for step in footprints[position:] if step.client == last), None)
            for client in (*enabled, *map(death_of, run.killable[position] if run.killable else ())):
                if client == last and used == self.preemptions:
                    continue  # a later schedule that reaches this key has no preemption left either
                cost = used + (client >= 0 and last in enabled and client != last)
                if cost <= self.preemptions and self._is_new(key, client, cost, client == run.choices[position]):
                    self._deviate((*run.choices[:position], client), cost, preempted if cost > used else None)

    def _is_new(self, key: Any, client: int, cost: int, is_this_run: bool) -> bool:
        """Whether running `client` after the steps of `key` leads to a schedule not seen at this cost or less."""
        best = self._seen.get((key, client), cost + 1)
        self._seen[key, client] = min(best, cost)
        if not is_this_run and self.prune and best <= cost:
            self._repeated += 1
            return False
        return not is_this_run

    def _deviate(self, branch: Choices, cost: int, preempted: Footprint | None) -> None:
        if preempted is None or not self.prune or self._footprints.may_conflict(preempted):
            self._add(cost, branch)
        else:
            self._parked.setdefault(preempted, []).append((cost, branch))

    def _unpark(self) -> None:
        """Add the schedules whose last switch turned out to matter."""
        for footprint in [parked for parked in self._parked if self._footprints.may_conflict(parked)]:
            for cost, branch in self._parked.pop(footprint):
                self._add(cost, branch)
