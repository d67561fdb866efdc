"""The budget of an exploration: how many disks it may check, for how long, and how much of that is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_wfstate.faults.crash.task import CrashResult, CrashTask
from pytest_wfstate.faults.disk.states import Counters, State
from pytest_wfstate.faults.real_clock import now

_PACE = 64  # disks between two updates of the live line


class Budget:
    """Counts what an exploration does, into its result, and decides whether it may go on."""

    def __init__(self, task: CrashTask) -> None:
        self._task = task
        self._began = self._exploring_since = now()
        self.counters = Counters(time_left=self._in_time, most=task.bounds.losses)
        self.result = CrashResult(task.model)
        self.waiting = 0
        """Recoveries or runs that are still to be done."""

    def start(self) -> None:
        """Start the clock of the bounds: the run of the workload does not count."""
        self._exploring_since = now()

    def allows_more(self, share: float = 1) -> bool:
        """Whether no bound is reached, or no share of one."""
        if not self.result.tried:
            return True  # an exploration that checks nothing would look clean
        return self.result.tried < self._task.bounds.states * share and self._in_time(share)

    def within(self, states: Iterable[State], share: float = 1) -> Iterator[State]:
        """Yield states to check until a bound is reached, or a share of it."""
        for state in states:
            if not self.allows_more(share):
                return
            self.result.tried += 1
            if self.result.tried % _PACE == 0:
                self.update()
                self._task.progress(self.result)
            yield state

    def add_run(self) -> None:
        """Count the disk of a whole run, which was not derived from a trace."""
        self.result.tried += 1
        self.counters.add_one()

    def update(self) -> None:
        """Bring the result up to date."""
        self.result.possible = self.counters.possible
        self.result.distinct = self.counters.distinct
        self.result.skipped = self.counters.skipped + self.waiting
        self.result.seconds = now() - self._began

    def _in_time(self, share: float = 1) -> bool:
        return now() - self._exploring_since <= self._task.bounds.seconds * share
