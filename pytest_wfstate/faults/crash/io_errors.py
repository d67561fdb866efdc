"""I/O errors: each file operation fails once with each error, in a run of its own, and the disk is checked each time.

A failed fsync also marks dirty pages clean, so that later fsyncs do not flush them: power cuts are tried after it. They
are tried once every operation has failed, from all such runs in rotation: a bound then cuts off the end of each run,
and leaves out no operation.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_wfstate.faults.bounds import FAILURES
from pytest_wfstate.faults.crash.budget import Budget
from pytest_wfstate.faults.crash.checker import Checker
from pytest_wfstate.faults.crash.report import REPLAYED
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.crash.task import NOTHING_WRITTEN, CrashTask
from pytest_wfstate.faults.disk.states import (
    CrashedRun,
    InjectedFailure,
    State,
    distinct_states,
    end_state,
    find,
    has_changed,
)
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.report_text import shown
from pytest_wfstate.faults.source_lines import SourceLine, causing_line
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import Fsync

__tracebackhide__ = True

ERRORS = ("ENOSPC", "EIO", "short")
_NEEDS_ROOM = {"create", "write", "truncate", "allocate", "mkdir", "link", "symlink", "rename"}


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Which op fails, counted from 1, and how."""

    number: int
    error: str

    def applies(self, intent: Intent) -> bool:
        """Whether an op can fail like this."""
        if self.error == "short":
            return intent.kind == "write" and intent.size > 1
        return self.error != "ENOSPC" or intent.kind in _NEEDS_ROOM


class Reaction(str):
    """What a workload may return to say how it handled an error: a retry, for instance."""

    __slots__ = ()


class FailOnce:
    """Makes one op fail. It is the gate of a recorder."""

    def __init__(self, failure: Failure | None) -> None:
        self._failure = failure
        self.intents: list[Intent] = []
        """All ops, as they were about to be done."""
        self.failed: Intent | None = None
        self.where: SourceLine | None = None

    def before(self, intent: Intent) -> int | None:
        """Fail, or cut a write short, if this is the op."""
        self.intents.append(intent)
        failure = self._failure
        if failure is None or len(self.intents) != failure.number or not failure.applies(intent):
            return None
        self.failed, self.where = intent, causing_line()
        if failure.error == "short":
            return intent.size // 2
        number = getattr(errno, failure.error)
        raise OSError(number, os.strerror(number), intent.path)

    def after(self, *_: object) -> None:
        """Do nothing: only what is about to happen can fail."""

    def injected(self, raised: BaseException | None, returned: object) -> InjectedFailure | None:
        """Describe what failed, and how the workload reacted."""
        failure, intent = self._failure, self.failed
        if failure is None or intent is None:
            return None
        how = "took only half of its bytes" if failure.error == "short" else f"failed with {failure.error}"
        what = f"{intent.kind} {shown(intent.path)} (op {failure.number}) {how}"
        reaction = returned if isinstance(returned, Reaction) else "returned as if nothing had failed"
        if raised is not None:
            reaction = f"raised {type(raised).__name__}: {raised}"
        return InjectedFailure(intent.kind, failure.error, failure.number, what, reaction, self.where)


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A run in which an op may have failed."""

    gate: FailOnce
    crashed: CrashedRun
    """The run as one that crashes."""

    def end(self) -> State:
        """Return the disk that it left, as nothing crashed."""
        return end_state(dataclasses.replace(self.crashed, ended=True))


class ErrorRun:
    """Every op, every error, one run each."""

    def __init__(self, task: CrashTask, errors: Sequence[str]) -> None:
        _check_names(errors)
        self._task = task
        self._errors = errors
        self._budget = Budget(task)
        self._checker = Checker(task, self._budget)
        self._start: tuple[Content, dict[str, str], list[Any]] = ({}, {}, [])
        self.result = self._budget.result

    def steps(self) -> Steps[None]:
        """Fail every op, and check the disk of each run and of the power cuts after it.

        Raises:
            ErrorBug: a disk fails the check.
        """
        task = self._task
        with self._checker.concluding():
            yield from task.set_up()
            self._start = (task.home.content(), task.home.links(), task.worlds.states())
            yield from self._fail_all()

    def _fail_all(self) -> Steps[None]:
        whole = yield from self._run(None)
        if not whole.gate.intents:
            self.result.reasons.append(NOTHING_WRITTEN)
        if self.result.reasons:
            return
        self._budget.add_run()
        yield from self._checker.check_uninterrupted(whole.end(), "an I/O error")
        replay = self._task.replay
        if replay is not None:
            if replay.ordinal == self._task.ordinal:
                yield from self._replay(replay)
            return
        failures = [
            failure
            for number, intent in enumerate(whole.gate.intents, 1)
            for failure in (Failure(number, error) for error in self._errors)
            if failure.applies(intent)
        ]
        self._budget.waiting = len(failures)
        self._budget.start()
        unflushed: list[CrashedRun] = []
        for failure in failures:
            if self.result.reasons or not self._budget.allows_more():
                return
            self._budget.waiting -= 1
            yield from self._fail(failure, unflushed)
        if not self.result.reasons:
            states = _in_rotation([distinct_states(run, self._budget.counters) for run in unflushed])
            for state in self._budget.within(states):
                yield from self._check(state)

    def _fail(self, failure: Failure, unflushed: list[CrashedRun]) -> Steps[None]:
        """Fail an op, and check what the run leaves. If it was an fsync, the run is one of the `unflushed`."""
        run = yield from self._run(failure)
        failed = run.gate.failed
        if failed is None:
            self.result.reasons.append(
                f"operation {failure.number}, chosen to fail, was never reached: the workload is not deterministic"
            )
        if self.result.reasons:
            return
        self._budget.add_run()
        yield from self._check(run.end())
        if failed is not None and failed.kind in ("fsync", "fdatasync"):
            unflushed.append(_since_the_failure(run.crashed))

    def _run(self, failure: Failure | None) -> Steps[_Run]:
        task = self._task
        content, links, worlds = self._start
        task.home.build(content, links)
        task.worlds.restore(worlds)
        gate = FailOnce(failure)
        raised: BaseException | None = None
        returned: object = None
        with task.recording(gate) as recorder:
            try:
                returned = yield task.workload, (task.home.path,)
            except FAILURES as error:
                raised = error
        if raised is not None and gate.failed is None:
            raise raised
        run = CrashedRun(recorder.trace(), task.model, tuple(worlds), injected=gate.injected(raised, returned))
        self.result.reasons += recorder.unmeasured
        self.result.reasons += task.worlds.changed_unseen(run.worlds_at(len(run.trace.items)))
        return _Run(gate, run)

    def _check(self, state: State) -> Steps[None]:
        """Check a disk; shrink and raise a violation."""
        error = yield from self._checker.check(state)
        if error is not None:
            shrink = Shrink(state, error, self._checker.check)
            yield from shrink.steps()
            self._budget.update()
            self._checker.fail(shrink.state, shrink.error, _advice(shrink.state), f"{self.result}.")

    def _replay(self, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        failed = replay.failed
        if failed is None:
            raise has_changed(replay.crashes[0])
        run = yield from self._run(Failure(failed.number, failed.error))
        if run.gate.failed is None or run.crashed.fingerprint() != failed.fingerprint:
            raise has_changed(failed)
        self.result.tried = 1
        state = run.end()
        if replay.crashes:
            (crash,) = replay.crashes
            self.result.model = crash.model
            state = find(_since_the_failure(dataclasses.replace(run.crashed, model=crash.model)), crash)
        error = yield from self._checker.check(state)
        if error is not None:
            self._checker.fail(state, error, _advice(state), REPLAYED)


def _since_the_failure(run: CrashedRun) -> CrashedRun:
    """Restrict the crashes of a run to those after the fsync that failed."""
    failed = next(index for index, item in enumerate(run.trace.items) if isinstance(item, Fsync) and item.failed)
    return dataclasses.replace(run, since=failed + 1)


def _in_rotation(runs: Sequence[Iterator[State]]) -> Iterator[State]:
    """Yield the first state of each run, then the second of each, and so on."""
    waiting = list(runs)
    while waiting:
        for states in list(waiting):
            state = next(states, None)
            if state is None:
                waiting.remove(states)
            else:
                yield state


def _advice(state: State) -> list[str]:
    """Return what the workload may have missed, where the error alone shows it."""
    injected = state.run.injected
    if injected is not None and injected.error == "short":
        return ["A write may take fewer bytes than it was given, and returns how many: write the rest, or raise."]
    if not state.run.ended:
        return [
            "A failed fsync marks dirty pages clean: a second fsync flushes nothing.",
            "Write everything again, to another file, or raise and acknowledge nothing.",
        ]
    return []


def _check_names(errors: Sequence[str]) -> None:
    """Raise TypeError or ValueError unless `errors` is a sequence of known names."""
    if isinstance(errors, str):
        raise TypeError(f"errors is {errors!r}, one string. Give a tuple of names: errors=({errors!r},).")
    if not errors:
        raise ValueError("errors is empty, so nothing would fail. Give names from errno, or 'short'.")
    for error in errors:
        if error != "short" and not (isinstance(error, str) and isinstance(getattr(errno, error, None), int)):
            raise ValueError(f"{error!r} is not a known error. Give names from errno, such as 'ENOSPC', or 'short'.")
