"""The search: all schedules of a few clients within a bound of preemptions, equivalent ones pruned."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from array import array
from collections.abc import Iterator

from pytest_wfstate.faults.race.conflicts import Footprint, Footprints
from pytest_wfstate.faults.race.frontier import Deviation, Frontier, SeenKeys
from pytest_wfstate.faults.race.schedule import SLEEP, Clients, ScheduleRun, client_keys, trace_keys
from pytest_wfstate.faults.replay_id import death_of

_STALLS = 3  # sleeps of a client since anything last changed, after each of which the others can be stalled
_DIFFERENT = 20  # polls of a client in a row, after which no schedules branch off but from the last one


@dataclasses.dataclass(slots=True)
class Stall:
    """What is known about a client that waits for others that are stalled."""

    is_first: bool = True
    is_over: bool = False
    """Whether it was tried how long the client waits."""
    is_endless: bool = False
    deviations: list[Deviation] = dataclasses.field(default_factory=list)
    """Schedules to run unless the client waits forever."""


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
    endless: set[int] = dataclasses.field(default_factory=set)
    """The clients that kept waiting for as long as the others could be stalled."""
    _stalls: dict[int, Stall] = dataclasses.field(default_factory=dict)

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
        self._conclude_stall(run, begin - 1)
        skipped = repeated_polls(run) if self.prune else frozenset()
        late = late_naps(run) if self.prune else frozenset()
        choices = array("h", run.choices)
        can_die = bool(run.killable) and min(run.choices) >= 0
        for position, key in enumerate(trace_keys(run.steps, begin), begin):
            if position in skipped:
                continue
            last, enabled = run.choices[position - 1] if position else -1, run.enabled[position]
            is_nap, preempted = position in run.naps, None
            if last in enabled and not is_nap:
                preempted = next((step for step in footprints[position:] if step.client == last), None)
            if preempted is not None and can_die and (last in run.killable[position] or run.used_lock(position - 1)):
                preempted = dataclasses.replace(preempted, may_die=True)
            for client in (*enabled, *map(death_of, run.killable[position] if run.killable else ())):
                is_this_run = client == run.choices[position]
                if is_nap and client == last and position in late and not is_this_run:
                    continue
                if is_nap and client == last:
                    # The others are stalled as after a preemption, unless one was preempted already.
                    cost, outlasts = max(used, 1), hash((key, SLEEP))
                    if cost <= self.preemptions and self._is_new(outlasts, client, cost, is_this_run):
                        self._outlast(run, Deviation(choices, position, client, cost))
                    continue
                if client == last and used == self.preemptions:
                    continue  # a later schedule that reaches this key has no preemption left either
                cost = used + (client >= 0 and last in enabled and client != last and not is_nap)
                if cost <= self.preemptions and self._is_new(key, client, cost, is_this_run):
                    self._deviate(Deviation(choices, position, client, cost), preempted if cost > used else None)

    def _outlast(self, run: ScheduleRun, deviation: Deviation) -> None:
        """Add a schedule in which a client keeps waiting while the others are stalled.

        How long it waits does not depend on where the others are stalled, if it has seen the same of them. So one that
        waits forever need not be stalled everywhere.
        """
        stall = self._stalls.setdefault(_waiting(run, deviation.position, deviation.client), Stall())
        if stall.is_endless:
            self._repeated += 1
        elif stall.is_first or stall.is_over or not self.prune:
            self.waiting.add(deviation)
        else:
            stall.deviations.append(deviation)
        stall.is_first = False

    def _conclude_stall(self, run: ScheduleRun, position: int) -> None:
        """Learn from a schedule that stalls the others from this step on whether they can be stalled for too long."""
        if position not in run.naps or not run.steps[position].outlasts:
            return
        client = run.choices[position]
        stall = self._stalls.setdefault(_waiting(run, position, client), Stall())
        stall.is_endless |= run.endless.get(client) == position
        stall.is_over = True
        for deviation in stall.deviations:
            if stall.is_endless:
                self._repeated += 1
            else:
                self.waiting.add(deviation)
        stall.deviations.clear()
        self.endless |= run.endless.keys()

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


def repeated_polls(run: ScheduleRun) -> frozenset[int]:
    """Return the steps of polls that are like the one before and the one after, while the other clients are stalled.

    It makes no difference after which of them the others continue.
    """
    steps = [(step.client, step.access.kind, step.access.path, step.access.error) for step in run.steps]
    naps = [position for position in sorted(run.naps) if run.steps[position].outlasts]
    polls = [steps[begin:end] for begin, end in itertools.pairwise(naps)]
    repeated: set[int] = set()
    for number, (before, poll, after) in enumerate(zip(polls, polls[1:], [*polls[2:], []], strict=False), 1):
        if before == poll == after or _DIFFERENT < number < len(polls) - 1:
            repeated.update(range(naps[number] + 1, naps[number + 1] + 1))
    for client, begin in run.endless.items():
        others = (position for position in range(begin, len(steps)) if steps[position][0] != client)
        end = next(others, len(steps))
        own = [poll for nap, poll in zip(naps, polls, strict=False) if begin <= nap and nap + len(poll) < end]
        if all(poll == own[0] for poll in own):  # nor whether they continue at once
            repeated.update(range(begin + 1, end))
    return frozenset(repeated)


def late_naps(run: ScheduleRun) -> frozenset[int]:
    """Return the steps before which a client fell asleep that has slept often since anything last changed.

    Else clients that all poll in vain could be stalled after each of their sleeps, in any combination.
    """
    slept: collections.Counter[int] = collections.Counter()
    late = set()
    for position, step in enumerate(run.steps):
        if position in run.naps:
            client = run.choices[position - 1]
            slept[client] += 1
            if slept[client] > _STALLS:
                late.add(position)
        if step.access.is_change and not step.access.error:
            slept.clear()
    return frozenset(late)


def _waiting(run: ScheduleRun, position: int, client: int) -> int:
    """Return a key for a client that sleeps, and all it may have seen."""
    return hash((client, next(client_keys(run.steps, position)).get(client)))
