"""Exploring crashes: record a workload, derive every disk that a crash could have left, and check each.

Nothing here knows a contract: the workload is any code that writes files, and the check raises if a disk is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pytest_wfstate.faults.crash.advice import advise
from pytest_wfstate.faults.crash.budget import Budget
from pytest_wfstate.faults.crash.checker import Checker, Sample
from pytest_wfstate.faults.crash.recordings import Recording, Recordings, writes
from pytest_wfstate.faults.crash.report import REMEMBERED, REPLAYED
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.crash.task import CrashTask
from pytest_wfstate.faults.disk.recovery import firsts, second_run
from pytest_wfstate.faults.disk.states import (
    CrashedRun,
    State,
    distinct_states,
    end_state,
    find,
    has_changed,
    in_rotation,
    ran_in_another_order,
)
from pytest_wfstate.faults.failures import CatchFailure
from pytest_wfstate.faults.replay_id import CrashId, ReplayId, TraceChanged
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.describe import describe

__tracebackhide__ = True


class Explorer:
    """One exploration, from the run of the workload to the verdict."""

    def __init__(self, task: CrashTask) -> None:
        self._task = task
        self._budget = Budget(task)
        self._checker = Checker(task, self._budget)
        self._sample = Sample(task.bounds.samples)
        self.result = self._budget.result
        self._recordings = Recordings(task, self._checker, self.result)

    def steps(self) -> Steps[None]:
        """Run the workload, and check every disk that a crash of it can leave.

        Raises:
            CrashBug: a disk fails the check.
        """
        with self._checker.concluding():
            yield from self._task.set_up()
            self._checker.fork()
            replay = self._replayed()
            recording = yield from self._recordings.first(replay.order if replay else "")
            if not self.result.reasons:
                yield from self._explore(recording, replay)

    def points(self) -> Steps[list[str]]:
        """Run the workload, and list what it does, in words."""
        yield from self._task.set_up()
        with self._task.recording() as recorder:
            yield self._task.workload, (self._task.home.path,)
        return describe(recorder.trace())

    def _replayed(self) -> ReplayId | None:
        """Return the replay id, if it belongs to this exploration."""
        replay = self._task.replay
        return replay if replay is not None and replay.ordinal == self._task.ordinal else None

    def _explore(self, recording: Recording, replay: ReplayId | None) -> Steps[None]:
        first = recording.run
        end = end_state(first)
        yield from self._checker.check_uninterrupted(end, "a crash")
        if replay is not None:
            yield from self._replay(recording, replay)
        if self._task.replay is not None:
            return
        runs = yield from self._recordings.all(first)
        yield from self._try_remembered(runs)
        if self.result.reasons:
            return
        self._budget.start()
        for run in runs:
            self._budget.add_sites(run.trace.items)
        self._sample.take(end)
        depth = self._task.depth
        tried: list[State] = []
        self._budget.allow(1 / depth)  # the rest is for crashes of the recovery, if there are to be any
        states = in_rotation([distinct_states(run, self._budget.counters) for run in runs])
        for state in self._budget.within(states):
            if not (yield from self._passes(state)):
                return
            tried += [state] if depth > 1 else []
        self._budget.allow(1)
        if depth > 1:
            yield from self._explore_recoveries(runs, tried)
        for state in self._sample.states:
            self._checker.agrees(state, None)

    def _explore_recoveries(self, runs: list[CrashedRun], tried: list[State]) -> Steps[None]:
        """Crash the check as well, where it writes."""
        disks = [disk for run in runs for disk in firsts(run, [state for state in tried if state.run is run])]
        self._budget.waiting = len(disks)
        for first in disks:
            if self.result.reasons or not self._budget.allows_more():
                return
            self._budget.waiting -= 1
            yield from self._explore_recovery(first)

    def _explore_recovery(self, first: State) -> Steps[None]:
        disk = self._checker.build(first)
        with CatchFailure() as caught, self._task.recording() as recorder:
            yield self._task.check, (disk,)
        if caught.error is not None:
            yield from self._violated(first, caught.error)
            return
        self.result.reasons += recorder.unmeasured
        recovery = recorder.trace()
        if self.result.reasons or not writes(recovery):
            return
        self._budget.add_sites(recovery.items)
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

    def _violated(self, state: State, error: BaseException, found_by: str = "") -> Steps[None]:
        """Shrink a violation and raise it, unless it exists only in this process."""
        if self._checker.agrees(state, error):
            shrink = Shrink(state, error, self._checker.check)
            yield from shrink.steps()
            self._budget.update()
            counts = found_by or f"{self.result}."  # before other disks are checked for advice
            yield from self._fail(shrink.state, shrink.error, counts)

    def _fail(self, state: State, error: BaseException, counts: str) -> Steps[None]:
        advice = yield from advise(state, self._checker.check, self._task.bounds.advised)
        yield from self._checker.fail(state, error, advice, counts)

    def _replay(self, recording: Recording, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        if replay.failed is not None:
            raise has_changed(replay.failed)
        if not recording.keeps_order:
            raise ran_in_another_order(replay.crashes[0])
        run = dataclasses.replace(recording.run, model=replay.crashes[0].model)
        state = yield from self._find(run, replay.crashes)
        self.result.model, self.result.tried = state.run.model, 1
        error = yield from self._checker.check(state)
        if error is not None and self._checker.agrees(state, error):
            yield from self._fail(state, error, REPLAYED)

    def _try_remembered(self, runs: Sequence[CrashedRun]) -> Steps[None]:
        """Check the disks that failed in earlier runs of the test."""
        for replay in self._task.remembered_crashes():
            if replay.failed is not None:
                continue
            run = yield from self._in_order(runs, replay.order)
            if run is None:
                continue
            try:
                state = yield from self._find(run, replay.crashes)
            except TraceChanged:
                self._task.remembered.drop(replay)
                continue
            error = yield from self._checker.check(state)
            if error is not None:
                self.result.tried = 1
                yield from self._violated(state, error, REMEMBERED)
                return

    def _in_order(self, runs: Sequence[CrashedRun], order: str) -> Steps[CrashedRun | None]:
        """Return the run in an order of its threads and tasks, recorded now if need be; None if it cannot be kept."""
        same = [run for run in runs if run.order == order]
        if same or not order:
            return same[0] if same else runs[0]
        return (yield from self._recordings.again(runs[0], order))

    def _find(self, run: CrashedRun, crashes: Sequence[CrashId]) -> Steps[State]:
        """Return the disk that ids refer to. The recovery before a second crash runs again.

        Raises:
            TraceChanged: the run or its recovery differs from the one that the ids were made for.
        """
        first, *later = crashes
        state = find(run, first)
        for crash in later:
            disk = self._checker.build(state)
            with CatchFailure() as caught, self._task.recording() as recorder:
                yield self._task.check, (disk,)
            if caught.error is not None:
                return state  # it fails the check even without the second crash
            state = find(second_run(state, recorder.trace()), crash)
        return state
