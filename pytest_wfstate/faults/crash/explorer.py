"""Exploring crashes: run a workload once, derive every disk that a crash could have left, and check each.

Nothing here knows a contract: the workload is any code that writes files, and the check raises if a disk is wrong.
"""

from __future__ import annotations

import dataclasses

from pytest_wfstate.faults.bounds import FAILURES
from pytest_wfstate.faults.crash.advice import advise
from pytest_wfstate.faults.crash.budget import Budget
from pytest_wfstate.faults.crash.checker import Checker, Sample
from pytest_wfstate.faults.crash.report import REPLAYED
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.crash.task import NOTHING_WRITTEN, CrashTask
from pytest_wfstate.faults.disk.recovery import firsts, second_run
from pytest_wfstate.faults.disk.states import CrashedRun, State, distinct_states, end_state, find, has_changed
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.describe import describe
from pytest_wfstate.faults.trace.ops import OPS, Trace

__tracebackhide__ = True


class Explorer:
    """One exploration, from the run of the workload to the verdict."""

    def __init__(self, task: CrashTask) -> None:
        self._task = task
        self._budget = Budget(task)
        self._checker = Checker(task, self._budget)
        self._sample = Sample(task.bounds.samples)
        self.result = self._budget.result

    def steps(self) -> Steps[None]:
        """Run the workload, and check every disk that a crash of it can leave.

        Raises:
            CrashBug: a disk fails the check.
        """
        with self._checker.concluding():
            yield from self._task.set_up()
            self._checker.fork()
            run = yield from self._record()
            if not self.result.reasons:
                yield from self._explore(run)

    def points(self) -> Steps[list[str]]:
        """Run the workload, and list what it does, in words."""
        yield from self._task.set_up()
        with self._task.recording() as recorder:
            yield self._task.workload, (self._task.home.path,)
        return describe(recorder.trace())

    def _record(self) -> Steps[CrashedRun]:
        """Run the workload once, under the recorder."""
        task = self._task
        worlds = tuple(task.worlds.states())
        with task.recording() as recorder:
            yield task.workload, (task.home.path,)
        trace = recorder.trace()
        self.result.reasons += recorder.unmeasured
        if not _writes(trace):
            self.result.reasons.append(NOTHING_WRITTEN)
        run = CrashedRun(trace, task.model, worlds)
        self.result.reasons += task.worlds.changed_unseen(run.worlds_at(len(trace.items)))
        return run

    def _explore(self, run: CrashedRun) -> Steps[None]:
        end = end_state(run)
        yield from self._checker.check_uninterrupted(end, "a crash")
        replay, depth = self._task.replay, self._task.depth
        if replay is not None:
            if replay.ordinal == self._task.ordinal:
                yield from self._replay(run, replay)
            return
        self._budget.start()
        self._sample.take(end)
        tried: list[State] = []
        # The first half of what a bound allows is for the run, if its recovery is to be crashed as well.
        for state in self._budget.within(distinct_states(run, self._budget.counters), 1 / depth):
            if not (yield from self._passes(state)):
                return
            tried += [state] if depth > 1 else []
        if depth > 1:
            yield from self._explore_recoveries(run, tried)
        for state in self._sample.states:
            self._checker.agrees(state, None)

    def _explore_recoveries(self, run: CrashedRun, tried: list[State]) -> Steps[None]:
        """Crash the check as well, where it writes."""
        disks = firsts(run, tried)
        self._budget.waiting = len(disks)
        for first in disks:
            if self.result.reasons or not self._budget.allows_more():
                return
            self._budget.waiting -= 1
            yield from self._explore_recovery(first)

    def _explore_recovery(self, first: State) -> Steps[None]:
        disk = self._checker.build(first)
        try:
            with self._task.recording() as recorder:
                yield self._task.check, (disk,)
        except FAILURES as error:
            yield from self._violated(first, error)
            return
        self.result.reasons += recorder.unmeasured
        recovery = recorder.trace()
        if self.result.reasons or not _writes(recovery):
            return
        for state in self._budget.within(distinct_states(second_run(first, recovery), self._budget.counters)):
            if not (yield from self._passes(state)):
                return

    def _passes(self, state: State) -> Steps[bool]:
        """Check a disk. Return False if it fails the check, but only in this process."""
        error = yield from self._checker.check(state)
        if error is None:
            self._sample.take(state)
        else:
            yield from self._violated(state, error)
        return error is None

    def _violated(self, state: State, error: BaseException) -> Steps[None]:
        """Shrink a violation and raise it, unless it exists only in this process."""
        if self._checker.agrees(state, error):
            shrink = Shrink(state, error, self._checker.check)
            yield from shrink.steps()
            self._budget.update()
            counts = f"{self.result}."  # before other disks are checked for advice
            yield from self._fail(shrink.state, shrink.error, counts)

    def _fail(self, state: State, error: BaseException, counts: str) -> Steps[None]:
        advice = yield from advise(state, self._checker.check, self._task.bounds.seconds)
        self._checker.fail(state, error, advice, counts)

    def _replay(self, run: CrashedRun, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        if replay.failed is not None:
            raise has_changed(replay.failed)
        crash, *later = replay.crashes
        state = find(dataclasses.replace(run, model=crash.model), crash)
        for crash in later:
            disk = self._checker.build(state)
            with self._task.recording() as recorder:
                yield self._task.check, (disk,)
            state = find(second_run(state, recorder.trace()), crash)
        self.result.model, self.result.tried = state.run.model, 1
        error = yield from self._checker.check(state)
        if error is not None and self._checker.agrees(state, error):
            yield from self._fail(state, error, REPLAYED)


def _writes(trace: Trace) -> bool:
    return any(isinstance(item, OPS) for item in trace.items)
