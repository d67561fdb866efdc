"""The budget of an exploration: how many disks it may look at and check, and how much of that is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_wfstate.faults.crash.task import CrashResult, CrashTask
from pytest_wfstate.faults.disk.states import Counters, State
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.source_lines import SourceLine
from pytest_wfstate.faults.trace.ops import OPS, Item

_PACE = 64  # disks between two updates of the live line


class Budget:
    """Counts what an exploration does, into its result, and decides whether it may go on."""

    def __init__(self, task: CrashTask) -> None:
        self._task = task
        self._began = self._exploring_since = now()
        self._share = 1.0
        self.counters = Counters(time_left=self._in_time, most=task.bounds.losses)
        self.allow(1)
        self.result = CrashResult(task.model)
        self.waiting = 0
        """Recoveries or runs that are still to be done."""
        self._sites: set[SourceLine] = set()
        self._crashed: set[SourceLine] = set()

    def start(self) -> None:
        """Start the clock of the safety net: the run of the workload does not count."""
        self._exploring_since = now()

    def allow(self, share: float) -> None:
        """Allow this share of the bounds, in all, from now on."""
        self._share = share
        self.counters.looks = max(1, self._task.bounds.looks * share)  # at least one: see `allows_more`
        self.counters.volume = max(1, self._task.bounds.volume * share)
        self.counters.is_over = False

    def allows_more(self) -> bool:
        """Whether no bound is reached."""
        if not self.result.tried:
            return True  # an exploration that checks nothing would look clean
        return self.result.tried < self._task.bounds.states * self._share and self._in_time()

    def allows_run(self) -> bool:
        """Whether one more run, in which an operation fails, reaches no bound."""
        return self.allows_more() and self.result.runs < max(1, self._task.bounds.runs)

    def within(self, states: Iterable[State]) -> Iterator[State]:
        """Yield states to check until a bound is reached."""
        for state in states:
            if not self.allows_more():
                return
            self.result.tried += 1
            index = state.point.index
            self._crashed.update(_sites(state.run.trace.items[max(0, index - 1) : index]))
            if self.result.tried % _PACE == 0:
                self.update()
                self._task.progress(self.result)
            yield state

    def add_sites(self, items: Iterable[Item]) -> None:
        """Count the lines of code that made these operations."""
        self._sites.update(_sites(items))

    def add_run(self, failed_at: SourceLine | None = None) -> None:
        """Count the disk of a whole run, which was not derived from a trace."""
        self.result.tried += 1
        self.counters.add_one()
        self._crashed |= {failed_at} if failed_at else set()

    def update(self) -> None:
        """Bring the result up to date."""
        self.result.possible = self.counters.possible + self.waiting
        self.result.looked = self.counters.looked
        self.result.derived = self.counters.derived
        self.result.distinct = self.counters.distinct
        self.result.skipped = self.counters.skipped + self.waiting
        self.result.sites = len(self._sites | self._crashed)
        self.result.crashed = len(self._crashed)
        self.result.seconds = now() - self._began

    def _in_time(self) -> bool:
        if now() - self._exploring_since > self._task.bounds.seconds:
            self.result.out_of_time = self._task.bounds.seconds
        return self.result.out_of_time is None


def _sites(items: Iterable[Item]) -> Iterator[SourceLine]:
    """Yield the lines of code of operations."""
    return (item.where for item in items if isinstance(item, OPS) and item.where is not None)
