"""The search: all schedules of a few clients within a bound of preemptions, equivalent ones pruned."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Iterator

from pytest_wfstate.faults.race.conflicts import Footprint, Footprints
from pytest_wfstate.faults.race.frontier import Deviation, Frontier, SeenKeys
from pytest_wfstate.faults.race.schedule import Clients, ScheduleRun, trace_keys
from pytest_wfstate.faults.replay_id import death_of


@dataclasses.dataclass(slots=True)
class ScheduleSearch:
    """Runs all schedules within a bound, fewest preemptions first, except those equivalent to another."""

    clients: Clients
    preemptions: int
    prune: bool = True
    most: float = math.inf
    """How many schedules may be run."""
    runs: int = 0
    waiting: Frontier = dataclasses.field(default_factory=Frontier)
    """Schedules still to run."""
    _repeated: int = 0
    _seen: SeenKeys = dataclasses.field(default_factory=SeenKeys)
    _footprints: Footprints = dataclasses.field(default_factory=Footprints)
    _parked: dict[Footprint, list[Deviation]] = dataclasses.field(default_factory=dict)
    """Schedules whose last switch matters to no other client, as far as is known, by the operation it precedes."""

    @property
    def pruned(self) -> int:
        """How many schedules were not run because they are equivalent to one that was."""
        return self._repeated + sum(map(len, self._parked.values()))

    def __iter__(self) -> Iterator[ScheduleRun]:
        run = self.clients.run(())
        self.runs += 1
        yield run
        self._branch(run, 0, 0)
        while self.waiting and self.runs < self.most:
            used, choices = self.waiting.pop()
            run = self.clients.run(choices)
            self.runs += 1
            yield run
            self._branch(run, len(choices), used)

    def _branch(self, run: ScheduleRun, begin: int, used: int) -> None:
        """Add the schedules that deviate from this one after its chosen beginning."""
        footprints = self._footprints.add(run)
        self._unpark()
        choices = array("h", run.choices)
        can_die = bool(run.killable) and min(run.choices) >= 0
        for position, key in enumerate(trace_keys(run.steps, begin), begin):
            last, enabled = run.choices[position - 1] if position else -1, run.enabled[position]
            preempted = None
            if last in enabled:
                preempted = next((step for step in footprints[position:] if step.client == last), None)
            if preempted is not None and can_die and (last in run.killable[position] or run.used_lock(position - 1)):
                preempted = dataclasses.replace(preempted, may_die=True)
            for client in (*enabled, *map(death_of, run.killable[position] if run.killable else ())):
                if client == last and used == self.preemptions:
                    continue  # a later schedule that reaches this key has no preemption left either
                cost = used + (client >= 0 and last in enabled and client != last)
                if cost <= self.preemptions and self._is_new(key, client, cost, client == run.choices[position]):
                    self._deviate(Deviation(choices, position, client, cost), preempted if cost > used else None)

    def _is_new(self, key: int, client: int, cost: int, is_this_run: bool) -> bool:
        """Whether running `client` after the steps of `key` leads to a schedule not seen at this cost or less."""
        chosen = (client, True) if client >= 0 else (death_of(client), False)  # -1 and -2 have the same hash
        best = self._seen.lower(hash((key, *chosen)), cost)
        if not is_this_run and self.prune and best is not None and best <= cost:
            self._repeated += 1
            return False
        return not is_this_run

    def _deviate(self, deviation: Deviation, preempted: Footprint | None) -> None:
        if preempted is None or not self.prune or self._footprints.may_conflict(preempted):
            self.waiting.add(deviation)
        else:
            self._parked.setdefault(preempted, []).append(deviation)

    def _unpark(self) -> None:
        """Add the schedules whose last switch turned out to matter."""
        for footprint in [parked for parked in self._parked if self._footprints.may_conflict(parked)]:
            for deviation in self._parked.pop(footprint):
                self.waiting.add(deviation)
