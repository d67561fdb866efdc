"""Errors: a workload in which one file operation after the other fails, and what it leaves each time.

Each op in turn fails with each error, in a run of its own. A failed fsync also lies: what was dirty counts as clean, so
later fsyncs do not bring it to the disk, and power cuts are tried after it. They come when every op has failed once,
from all such runs in turn: a bound cuts off the end of each, and no op.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_wfstate.faults.bounds import FAILURES, CheckFails
from pytest_wfstate.faults.crash.explorer import REPLAYED, CrashResult, CrashTask, Explorer
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.disk.states import (
    CrashedRun,
    InjectedFailure,
    State,
    distinct_states,
    end_state,
    find,
    has_changed,
)
from pytest_wfstate.faults.drive import Steps
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.report_text import named, shown
from pytest_wfstate.faults.source import SourceLine, causing_line
from pytest_wfstate.faults.trace.ops import Fsync, Trace

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

ERRORS = ("ENOSPC", "EIO", "short")
_NEEDS_ROOM = {"create", "write", "truncate", "allocate", "mkdir", "link", "symlink", "rename"}


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Which op fails, counted from 1, and how."""

    number: int
    error: str

    def applies(self, intent: Intent) -> bool:
        """Tell whether an op can fail like this."""
        if self.error == "short":
            return intent.kind == "write" and intent.size > 1
        return self.error != "ENOSPC" or intent.kind in _NEEDS_ROOM


class FailOnce:
    """Lets one op fail. It is the gate of a recorder."""

    def __init__(self, failure: Failure | None) -> None:
        self._failure = failure
        self.asked: list[Intent] = []
        """All ops, as they were about to be done."""
        self.injected: Intent | None = None
        self.where: SourceLine | None = None

    def before(self, intent: Intent) -> int | None:
        """Fail if it is this op's turn."""
        self.asked.append(intent)
        failure = self._failure
        if failure is None or len(self.asked) != failure.number or not failure.applies(intent):
            return None
        self.injected, self.where = intent, causing_line()
        if failure.error == "short":
            return intent.size // 2
        number = getattr(errno, failure.error)
        raise OSError(number, os.strerror(number), intent.path)

    def after(self, *_: object) -> None:
        """Go on."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Ran:
    """A run in which an op may have failed."""

    failure: Failure | None
    saboteur: FailOnce
    trace: Trace
    raised: BaseException | None

    def injected(self) -> InjectedFailure | None:
        """Tell what failed, and what the workload made of it."""
        failure, intent, raised = self.failure, self.saboteur.injected, self.raised
        if failure is None or intent is None:
            return None
        how = "took only half of its bytes" if failure.error == "short" else f"failed with {failure.error}"
        told = f"{intent.kind} {shown(intent.path)} (op {failure.number}) {how}"
        reaction = "went on as if nothing had happened" if raised is None else f"raised {_said(raised)}"
        return InjectedFailure(intent.kind, failure.error, failure.number, told, f"it {reaction}", self.saboteur.where)


class ErrorRun:
    """Every op, every error, one run each."""

    def __init__(self, task: CrashTask, errors: Sequence[str]) -> None:
        _check_names(errors)
        self._task = task
        self._errors = errors
        self._explorer = Explorer(task)
        self._start: tuple[Content, dict[str, str], list[Any]] = ({}, {}, [])
        self.result: CrashResult = self._explorer.result

    def steps(self) -> Steps[None]:
        """Do it all. Gives the calls to make; returns an `CrashResult`, whose states are runs and power cuts.

        Raises:
            ErrorBug: a disk was found that the check does not accept.
        """
        task = self._task
        worlds = task.worlds.states()
        try:
            if task.setup is not None:
                yield task.setup, (task.home.path,)
            self._start = (task.home.content(), task.home.links(), task.worlds.states())
            yield from self._fail_all()
            if not self.result.reasons:
                self.result.verdict = "CLEAN"
        finally:
            task.worlds.restore(worlds)
            self._explorer.count()

    def _fail_all(self) -> Steps[None]:
        whole = yield from self._run(None)
        if not whole.saboteur.asked:
            self.result.reasons.append("nothing was written below home: write to the folder that the workload is given")
        if self.result.reasons:
            return
        yield from self._check_whole(whole)
        replay = self._task.replay
        if replay is not None:
            if replay.ordinal == self._task.ordinal:
                yield from self._replay(replay)
            return
        failures = [
            failure
            for number, intent in enumerate(whole.saboteur.asked, 1)
            for failure in (Failure(number, error) for error in self._errors)
            if failure.applies(intent)
        ]
        self._explorer.left = len(failures)
        self._explorer.begin()
        lied: list[CrashedRun] = []
        for failure in failures:
            if self.result.reasons or not self._explorer.may_go_on():
                return
            self._explorer.left -= 1
            yield from self._fail(failure, lied)
        if not self.result.reasons:
            yield from self._check_power_cuts(lied)

    def _fail(self, failure: Failure, lied: list[CrashedRun]) -> Steps[None]:
        """Let an op fail, and check what the run leaves. If it was an fsync, the run is one of those that `lied`."""
        ran = yield from self._run(failure)
        if ran.saboteur.injected is None:
            self.result.reasons.append(
                f"a run did not come to op {failure.number}, which was to fail: the workload is not always the same"
            )
        if self.result.reasons:
            return
        self._count_run()
        yield from self._check(end_state(self._life(ran, ended=True)), "{0}.")
        if ran.saboteur.injected is not None and ran.saboteur.injected.kind in ("fsync", "fdatasync"):
            lied.append(_since_the_failure(self._life(ran)))

    def _run(self, failure: Failure | None) -> Steps[_Ran]:
        task = self._task
        content, links, worlds = self._start
        task.home.build(content, links)
        task.worlds.restore(worlds)
        saboteur = FailOnce(failure)
        raised: BaseException | None = None
        with self._explorer.recording(saboteur) as recorder:
            try:
                yield task.workload, (task.home.path,)
            except FAILURES as error:
                raised = error
        if raised is not None and saboteur.injected is None:
            raise raised
        ran = _Ran(failure, saboteur, recorder.trace(), raised)
        self.result.reasons += recorder.unmeasured
        self.result.reasons += task.worlds.changed_unseen(self._life(ran).worlds_at(len(ran.trace.items)))
        return ran

    def _life(self, ran: _Ran, *, ended: bool = False) -> CrashedRun:
        return CrashedRun(ran.trace, self._task.model, tuple(self._start[2]), injected=ran.injected(), ended=ended)

    def _check_whole(self, whole: _Ran) -> Steps[None]:
        """Check the run in which nothing failed."""
        self._count_run()
        error = yield from self._explorer.check(end_state(self._life(whole, ended=True)))
        if error is not None:
            raise CheckFails(
                f"your check fails without any error: {named(error)}. It was given the disk of a run "
                "that ended well. Mend the check, or what it calls, before asking about errors."
            ) from error  # which pytest shows, with all that it says

    def _check_power_cuts(self, runs: Sequence[CrashedRun]) -> Steps[None]:
        """Check what power cuts would leave, after fsyncs that failed."""
        each = [distinct_states(run, self._explorer.counters) for run in runs]
        for state in self._explorer.within_bounds(_in_turn(each)):
            yield from self._check(state, "{0}.")

    def _check(self, state: State, counts: str) -> Steps[None]:
        """Check a disk; if it is a violation, shrink it and tell it."""
        error = yield from self._explorer.check(state)
        if error is not None:
            shrink = Shrink(state, error, self._explorer.check)
            yield from shrink.steps()
            self._explorer.count()
            self._explorer.tell(shrink.state, shrink.error, _advice(shrink.state), counts.format(self.result))

    def _replay(self, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        failed = replay.failed
        if failed is None:
            raise has_changed(replay.crashes[0])
        ran = yield from self._run(Failure(failed.number, failed.error))
        run = self._life(ran, ended=not replay.crashes)
        if run.injected is None or run.fingerprint() != failed.fingerprint:
            raise has_changed(failed)
        self.result.tried = 1
        if replay.crashes:
            (crash,) = replay.crashes
            self.result.model = crash.model
            state = find(_since_the_failure(dataclasses.replace(run, model=crash.model)), crash)
        else:
            state = end_state(run)
        error = yield from self._explorer.check(state)
        if error is not None:
            self._explorer.tell(state, error, _advice(state), REPLAYED)

    def _count_run(self) -> None:
        self.result.tried += 1
        self._explorer.counters.add_one()


def _since_the_failure(run: CrashedRun) -> CrashedRun:
    """Give the crashes of a life that come after the fsync that failed."""
    failed = next(at for at, item in enumerate(run.trace.items) if isinstance(item, Fsync) and item.failed)
    return dataclasses.replace(run, since=failed + 1)


def _in_turn(each: Sequence[Iterator[State]]) -> Iterator[State]:
    """Give the first of each, then the second of each, and so on until all are at their end."""
    waiting = list(each)
    while waiting:
        going = []
        for states in waiting:
            state = next(states, None)
            if state is not None:
                going.append(states)
                yield state
        waiting = going


def _advice(state: State) -> list[str]:
    """Say what the workload may have missed, where the error alone tells."""
    injected = state.run.injected
    if injected is not None and injected.error == "short":
        return ["A write may take less than it was given, and says how much: go on with the rest, or raise."]
    if not state.run.ended:
        return [
            "After an fsync that failed, what was dirty counts as clean: a second fsync brings nothing to the disk.",
            "Write it all anew, to another file, or raise and acknowledge nothing.",
        ]
    return []


def _check_names(errors: Sequence[str]) -> None:
    """Refuse what names no error.

    Raises:
        TypeError: it is not several names.
        ValueError: it names none, or one that is unknown.
    """
    if isinstance(errors, str):
        raise TypeError(f"errors is {errors!r}, one string. Give a tuple of names: errors=({errors!r},).")
    if not errors:
        raise ValueError("errors names no error, so nothing would fail. Give names from errno, or 'short'.")
    for error in errors:
        if error != "short" and not (isinstance(error, str) and isinstance(getattr(errno, error, None), int)):
            raise ValueError(f"{error!r} is no error. Give names from errno, such as 'ENOSPC', or 'short'.")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
