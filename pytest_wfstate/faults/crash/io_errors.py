"""I/O errors: each file operation fails with each error, in a run of its own, and the disk is checked each time.

A failed fsync also marks dirty pages clean, so that later fsyncs do not flush them: power cuts are tried after it. They
are tried once every operation has failed, from all such runs in rotation: a bound then cuts off the end of each run,
and leaves out no operation. What a power cut without any error can leave as well is not a violation here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.faults.crash.advice import first_missing_sync, without_missing_sync
from pytest_wfstate.faults.crash.budget import Budget
from pytest_wfstate.faults.crash.checker import Checker, Sample
from pytest_wfstate.faults.crash.failing_gate import FailingGate, Failure, all_failures, check_names
from pytest_wfstate.faults.crash.report import REMEMBERED, REPLAYED
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.crash.sqlite_advice import database_of
from pytest_wfstate.faults.crash.task import NOTHING_WRITTEN, CrashTask
from pytest_wfstate.faults.crash.unflushed_run import UnflushedRun, WholeRun, failed_to_flush
from pytest_wfstate.faults.disk.home import HomeImage
from pytest_wfstate.faults.disk.states import (
    CrashedRun,
    State,
    distinct_states,
    end_state,
    find,
    has_changed,
    in_rotation,
)
from pytest_wfstate.faults.failures import CatchFailure
from pytest_wfstate.faults.replay_id import LATE, CrashId, FailedId, ReplayId, TraceChanged
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import Create, Fsync, Trace

__tracebackhide__ = True

_PAGE = "docs/crash.md#a-failed-fsync"


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A run in which an op may have failed."""

    gate: FailingGate
    crashed: CrashedRun
    """The run as one that crashes."""

    def end(self) -> State:
        """Return the disk that it left, as nothing crashed."""
        return end_state(dataclasses.replace(self.crashed, ended=True))


class ErrorRun:
    """Every op, every error, one run each."""

    def __init__(self, task: CrashTask, errors: Sequence[str]) -> None:
        check_names(errors)
        self._task = task
        self._errors = errors
        self._budget = Budget(task)
        self._checker = Checker(task, self._budget)
        self._sample = Sample(task.bounds.samples)
        self._start: tuple[HomeImage, list[Any]] = (HomeImage({}, {}, {}), [])
        self._order = ""
        self.result = self._budget.result
        self.result.struck = "failed"

    def steps(self) -> Steps[None]:
        """Fail every op, and check the disk of each run and of the power cuts after it.

        Raises:
            ErrorBug: a disk fails the check.
        """
        task = self._task
        with self._checker.concluding():
            yield from task.set_up()
            self._start = (task.home.image(), task.worlds.states())
            self._checker.fork()
            yield from self._explore()

    def _explore(self) -> Steps[None]:
        whole = yield from self._run(None)
        if whole.crashed.trace.turns:
            self._order = LATE  # so that its threads do their operations in the same order in each run
            whole = yield from self._run(None)
        failures = all_failures(whole.gate, self._errors)
        if not failures:
            nothing = f"nothing that was done below home can fail with {' or '.join(self._errors)}"
            self.result.reasons.append(nothing if whole.gate.intents else NOTHING_WRITTEN)
        if self.result.reasons:
            return
        self._budget.add_run()
        yield from self._checker.check_uninterrupted(whole.end(), "an I/O error")
        self._sample.take(whole.end())
        replay = self._task.replay
        if replay is not None:
            if replay.ordinal == self._task.ordinal:
                yield from self._replay(replay)
            return
        yield from self._try_remembered()
        if self.result.reasons:
            return
        self._budget.add_sites(whole.crashed.trace.items)
        unflushed = yield from self._fail_each(failures)
        if not self.result.reasons:
            yield from self._cut_power(unflushed, WholeRun(whole.crashed, self._checker.check))
        for state in self._sample.states:
            if not self.result.reasons:
                self._checker.agrees(state, None)

    def _fail_each(self, failures: Sequence[Failure]) -> Steps[list[UnflushedRun]]:
        """Fail one op after the other, and check what each run leaves. Return the runs in which an fsync failed."""
        self._budget.waiting = len(failures)
        self._budget.start()
        unflushed: dict[str, UnflushedRun] = {}
        for failure in failures:
            if self.result.reasons or not self._budget.allows_run():
                break
            self._budget.waiting -= 1
            run = yield from self._run(failure)
            if run.gate.failed is None:
                self.result.reasons.append(
                    f"operation {failure.number}, chosen to fail, was never reached: the workload is not deterministic"
                )
            if self.result.reasons:
                break
            self.result.runs += 1
            self._budget.add_run(run.gate.where)
            yield from self._check(run.end())
            if failed_to_flush(run.crashed.trace):
                # Runs that did the same differ only in the error's name.
                unflushed.setdefault(run.crashed.fingerprint(), UnflushedRun(run.crashed))
        return list(unflushed.values())

    def _run(self, failure: Failure | None) -> Steps[_Run]:
        task = self._task
        image, worlds = self._start
        task.home.build(*image)
        task.worlds.restore(worlds)
        gate = FailingGate(failure)
        returned: object = None
        with task.recording(gate, self._order) as recorder, CatchFailure() as caught:
            returned = yield task.workload, (task.home.path,)
        if caught.error is not None and gate.failed is None:
            raise caught.error
        injected = gate.injected(caught.error, returned)
        run = CrashedRun(recorder.trace(), task.model, tuple(worlds), injected=injected, order=self._order)
        self.result.reasons += recorder.unmeasured
        self.result.reasons += task.worlds.changed_unseen(run.worlds_at(len(run.trace.items)))
        return _Run(gate, run)

    def _check(self, state: State) -> Steps[None]:
        """Check the disk of a run that nothing crashed; raise a violation."""
        error = yield from self._checker.check(state)
        if error is None:
            self._sample.take(state)
        elif self._checker.agrees(state, error):
            self._budget.update()
            yield from self._fail(None, state, error, f"{self.result}.")

    def _cut_power(self, unflushed: Sequence[UnflushedRun], whole: WholeRun) -> Steps[None]:
        """Check the disks of power cuts after a failed fsync."""
        runs = {id(run.run): run for run in unflushed}
        states = in_rotation([distinct_states(run.run, self._budget.counters) for run in unflushed])
        for state in self._budget.within(states):
            error = yield from self._checker.check(state)
            if error is None:
                self._sample.take(state)
            elif not (yield from self._is_known(runs[id(state.run)], state, whole)):
                yield from self._violated(runs[id(state.run)], state, error, whole)
                return

    def _is_known(self, run: UnflushedRun, state: State, whole: WholeRun) -> Steps[bool]:
        """Whether a disk that fails the check says nothing that a power cut of the whole run does not."""
        if not (yield from run.is_cause(state, self._checker.check)):
            return (yield from whole.fails_by_losing((yield from run.losses(state, self._checker.check))))
        return (yield from run.is_older(state, self._checker.check)) or (yield from whole.fails_with(state))

    def _violated(self, run: UnflushedRun, state: State, error: BaseException, whole: WholeRun) -> Steps[None]:
        """Shrink a violation and raise it, unless it exists only in this process."""

        def check(candidate: State) -> Steps[BaseException | None]:
            error = yield from self._checker.check(candidate)
            return None if error is None or (yield from self._is_known(run, candidate, whole)) else error

        if self._checker.agrees(state, error):
            shrink = Shrink(state, error, check)
            yield from shrink.steps()
            self._budget.update()
            yield from self._fail(run, shrink.state, shrink.error, f"{self.result}.")

    def _fail(self, run: UnflushedRun | None, state: State, error: BaseException, counts: str) -> Steps[None]:
        """Raise a violation: of a run with an error, or of a power cut after a failed fsync."""
        is_cause = run is None or (yield from run.is_cause(state, self._checker.check))
        yield from self._checker.fail(state, error, _advice(state) if is_cause else _advice_on_handling(state), counts)

    def _replay(self, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        if replay.failed is None:
            raise has_changed(replay.crashes[0])
        run, state = yield from self._find(replay.failed, replay.crashes)
        self.result.tried = 1
        self.result.model = state.run.model if replay.crashes else self.result.model
        yield from self._check_again(run, state, REPLAYED)

    def _try_remembered(self) -> Steps[None]:
        """Repeat the errors that led to a violation in earlier runs of the test."""
        for replay in self._task.remembered_crashes():
            if replay.failed is None or replay.failed.error not in self._errors:
                continue
            try:
                run, state = yield from self._find(replay.failed, replay.crashes)
            except TraceChanged:
                self._task.remembered.drop(replay)
                continue
            if self.result.reasons:
                return
            yield from self._check_again(run, state, REMEMBERED)

    def _check_again(self, run: UnflushedRun | None, state: State, counts: str) -> Steps[None]:
        error = yield from self._checker.check(state)
        if error is not None and self._checker.agrees(state, error):
            self.result.tried = 1
            yield from self._fail(run, state, error, counts)

    def _find(self, failed: FailedId, crashes: Sequence[CrashId]) -> Steps[tuple[UnflushedRun | None, State]]:
        """Fail the op again, and return the disk that ids refer to, and the run if it is one of a power cut.

        Raises:
            TraceChanged: the run differs from the one that the ids were made for.
        """
        run = yield from self._run(Failure(failed.number, failed.error))
        if run.gate.failed is None or run.crashed.fingerprint() != failed.fingerprint:
            raise has_changed(failed)
        if not crashes:
            return None, run.end()
        (crash,) = crashes
        unflushed = UnflushedRun(dataclasses.replace(run.crashed, model=crash.model))
        return unflushed, find(unflushed.run, crash)


def _advice(state: State) -> list[str]:
    """Return what the workload may have missed, where the error alone shows it."""
    injected = state.run.injected
    if injected is not None and injected.error == "short":
        return ["A write may take fewer bytes than it was given, and returns how many: write the rest, or raise."]
    return [] if state.run.ended else advice_on_fsync(state.run.trace)


def advice_on_fsync(trace: Trace) -> list[str]:
    """Return what to do after a failed fsync, which depends on what was not flushed."""
    node = next((item.node for item in trace.items if isinstance(item, Fsync) and item.failed), None)
    is_file = node in trace.start.data or any(isinstance(item, Create) and item.node == node for item in trace.items)
    if node is not None and database_of(trace, node):
        return [
            "After a failed fsync, pages that SQLite takes to be on the disk are not, and no later fsync flushes them.",
            f"Close the connection, and repeat the transaction on a new one, or raise: {_PAGE} shows how.",
        ]
    if node is not None and not is_file:
        return [
            "A failed fsync of a folder marks its changes as flushed: a second fsync flushes nothing.",
            f"Change the folder again before the next fsync, or raise and acknowledge nothing: {_PAGE} shows how.",
        ]
    return [
        "A failed fsync marks dirty pages clean: a second fsync flushes nothing.",
        f"Write everything again, to another file, or raise and acknowledge nothing: {_PAGE} shows how.",
    ]


def _advice_on_handling(state: State) -> list[str]:
    """Return what the handling of an error lacks."""
    missing = first_missing_sync(state)
    if missing is None:
        return without_missing_sync(state)
    return [f"{missing.advice[0].upper()}{missing.advice[1:]} would make this state impossible."]
