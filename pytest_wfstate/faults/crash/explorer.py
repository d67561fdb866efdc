"""Explore: run a workload once, derive every disk that a crash could have left, and check each.

Nothing here knows a contract: the workload is any code that writes files, and the check raises if a disk is not
acceptable. The work is a generator that asks for its calls to be made, so that one explorer serves sync and async.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from pytest_wfstate.faults.bounds import FAILURES, Bounds, CheckFails, Model
from pytest_wfstate.faults.crash.advice import first_missing_sync, without_missing_sync
from pytest_wfstate.faults.crash.clean_process import CannotCompare, FreshProcess, Verdict
from pytest_wfstate.faults.crash.report import CrashBug, ErrorBug, report, where_it_died
from pytest_wfstate.faults.crash.shrink import Shrink
from pytest_wfstate.faults.disk.home import Disk, Home
from pytest_wfstate.faults.disk.recovery import firsts, second_run
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, State, distinct_states, end_state, find, has_changed
from pytest_wfstate.faults.drive import Steps, call
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.gate import Gate
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.report_text import named
from pytest_wfstate.faults.result import Result, count
from pytest_wfstate.faults.trace.describe import describe
from pytest_wfstate.faults.trace.ops import OPS
from pytest_wfstate.faults.world.world import Worlds

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

_GRACE = 0.2  # seconds for the threads of a workload to end after it has
_MOST_ADVICE = 5
_COUNTED = 500  # disks that are checked to tell how much an fsync would mend
REPLAYED = "This is one disk, replayed."


@dataclasses.dataclass(slots=True)
class CrashResult(Result):
    """What an exploration has seen."""

    model: Model
    possible: int = 0
    """Combinations of what could be kept and lost, over all points of the run."""
    distinct: int = 0
    """Different disks among those that were looked at."""

    def __str__(self) -> str:
        skipped = f", {count(self.skipped)} combinations skipped" if self.skipped else ""
        return (
            f"{self.model}: {self.tried:,} distinct disks checked of {count(self.possible)} possible combinations"
            f"{skipped}, in {self.seconds:.2f} s"
        )

    def numbers(self) -> dict[str, Any]:
        """Give what there is to count, each by its name."""
        return {
            "model": self.model,
            "states": self.tried,
            "possible": count(self.possible),
            "seconds": round(self.seconds, 3),
        }

    def progress(self) -> str:
        """Say how far it has come."""
        return f"{self.tried:,} disks checked, {count(self.possible)} combinations"


@dataclasses.dataclass(slots=True)
class CrashTask:
    """What is to be explored, and how."""

    workload: Callable[..., Any]
    check: Callable[..., Any]
    setup: Callable[..., Any] | None
    model: Model
    depth: int
    home: Home
    worlds: Worlds
    bounds: Bounds
    children: str = "forbid"
    test: str | None = None
    ordinal: int = 1
    """Which exploration of the test it is."""
    replay: ReplayId | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[CrashResult], None] = lambda _: None


class Explorer:
    """One exploration, from the run to the verdict."""

    def __init__(self, task: CrashTask) -> None:
        self._task = task
        self._sample = _Sample(task.bounds.samples)
        self._began = self._exploring_since = now()
        self._fresh: FreshProcess | None = None
        self.counters = Counters(time_left=self._in_time, most=task.bounds.losses)
        self._known: tuple[CrashedRun, int, tuple[list[Any], list[str], list[Any]]] | None = None
        self.left = 0
        """Recoveries or runs that are still to be done."""
        self.result = CrashResult(task.model)

    def steps(self) -> Steps[None]:
        """Do it all. Gives the calls to make; returns the `CrashResult`.

        Raises:
            CrashBug: a disk was found that the check does not accept.
        """
        task = self._task
        worlds = task.worlds.states()
        try:
            if task.setup is not None:
                yield task.setup, (task.home.path,)
            self._fresh = FreshProcess(self._check_afresh, task.worlds)
            run = yield from self._live()
            if not self.result.reasons:
                yield from self._explore(run)
            if not self.result.reasons:
                self.result.verdict = "CLEAN"
        finally:
            if self._fresh is not None:
                self._fresh.close()
            task.worlds.restore(worlds)  # for the next exploration of the test
            self.count()

    def _live(self) -> Steps[CrashedRun]:
        """Run the workload once, under the recorder."""
        task = self._task
        worlds = tuple(task.worlds.states())
        with self.recording() as recorder:
            yield task.workload, (task.home.path,)
        trace = recorder.trace()
        self.result.reasons += recorder.unmeasured
        if not any(isinstance(item, OPS) for item in trace.items):
            self.result.reasons.append("nothing was written below home: write to the folder that the workload is given")
        run = CrashedRun(trace, task.model, worlds)
        self.result.reasons += task.worlds.changed_unseen(run.worlds_at(len(trace.items)))
        return run

    @contextlib.contextmanager
    def recording(self, gate: Gate | None = None) -> Iterator[Recorder]:
        """Record what happens below home, and to the outside world."""
        worlds = self._task.worlds
        with Recorder(self._task.home.path, gate, self._task.children) as recorder:
            worlds.log = recorder.log
            try:
                yield recorder
                _settle(recorder)
            finally:
                worlds.log = None

    def points(self) -> Steps[list[str]]:
        """Run the workload, and list what it does, in words."""
        if self._task.setup is not None:
            yield self._task.setup, (self._task.home.path,)
        with self.recording() as recorder:
            yield self._task.workload, (self._task.home.path,)
        return describe(recorder.trace())

    def _explore(self, run: CrashedRun) -> Steps[None]:
        yield from self._check_uncrashed(run)
        task = self._task
        if task.replay is not None:
            if task.replay.ordinal == task.ordinal:
                yield from self._replay(run, task.replay)
            return
        self.begin()
        tried: list[State] = []
        # The first half of what a bound allows is for the run, if its recovery is to be crashed as well.
        for state in self.within_bounds(distinct_states(run, self.counters), 1 / task.depth):
            error = yield from self.check(state)
            if error is not None:
                yield from self._violated(state, error)
                return
            self._sample.take(state)
            tried += [state] if task.depth > 1 else []
        if task.depth > 1:
            yield from self._explore_recoveries(run, tried)
        for state in self._sample.states:
            self._compare(state, None)

    def within_bounds(self, states: Iterable[State], share: float = 1) -> Iterator[State]:
        """Give states to check until a bound is reached, or a share of it."""
        for state in states:
            if not self.may_go_on(share):
                return
            self.result.tried += 1
            if self.result.tried % 64 == 0:
                self.count()
                self._task.progress(self.result)
            yield state

    def begin(self) -> None:
        """Have the time that a bound allows begin now: what came before was not the lab's to choose."""
        self._exploring_since = now()

    def may_go_on(self, share: float = 1) -> bool:
        """Tell whether no bound is reached, or no share of it."""
        if not self.result.tried:
            return True  # else nothing would be looked at, and found to be clean
        return self.result.tried < self._task.bounds.states * share and self._in_time(share)

    def _in_time(self, share: float = 1) -> bool:
        return now() - self._exploring_since <= self._task.bounds.seconds * share

    def _check_uncrashed(self, run: CrashedRun) -> Steps[None]:
        end = end_state(run)
        self._sample.take(end)
        error = yield from self.check(end)
        if error is not None:
            raise CheckFails(
                f"your check fails without a crash: {named(error)}. It was given the disk of a run "
                "that ended well. Mend the check, or what it calls, before asking about crashes."
            ) from error  # which pytest shows, with all that it says

    def check(self, state: State) -> Steps[BaseException | None]:
        """Build a disk and check it; give what the check raised."""
        disk = self._build(state)
        try:
            yield self._task.check, (disk,)
        except FAILURES as error:
            return error
        return None

    def _build(self, state: State) -> Disk:
        self._task.home.build(*self.counters.content(state))
        acked, effects, worlds = self._outside(state.run, state.point.index)
        self._task.worlds.restore(worlds)
        died = functools.partial(where_it_died, state)
        return Disk(self._task.home.path, list(map(_copied, acked)), list(effects), died)

    def _outside(self, run: CrashedRun, index: int) -> tuple[list[Any], list[str], list[Any]]:
        """Give what the outside knows at a cut. The last is kept: disks come cut by cut."""
        if self._known is None or self._known[0] is not run or self._known[1] != index:
            self._known = (run, index, (run.acked(index), run.effects(index), run.worlds_at(index)))
        return self._known[2]

    def _explore_recoveries(self, run: CrashedRun, tried: list[State]) -> Steps[None]:
        """Crash the check as well, where it wrote."""
        disks = firsts(run, tried)
        self.left = len(disks)
        for first in disks:
            if self.result.reasons or not self.may_go_on():
                return
            self.left -= 1
            yield from self._explore_recovery(first)

    def _explore_recovery(self, first: State) -> Steps[None]:
        disk = self._build(first)
        try:
            with self.recording() as recorder:
                yield self._task.check, (disk,)
        except FAILURES as error:
            yield from self._violated(first, error)
            return
        self.result.reasons += recorder.unmeasured
        second = recorder.trace()
        if self.result.reasons or not any(isinstance(item, OPS) for item in second.items):
            return
        for state in self.within_bounds(distinct_states(second_run(first, second), self.counters)):
            failed = yield from self.check(state)
            if failed is not None:
                yield from self._violated(state, failed)
                return
            self._sample.take(state)

    def _violated(self, state: State, error: BaseException) -> Steps[None]:
        """Shrink a violation and tell it, unless it exists only in this process."""
        if self._compare(state, _said(error)):
            shrink = Shrink(state, error, self.check)
            yield from shrink.steps()
            yield from self._mend(shrink.state, shrink.error, "{0}.")

    def _mend(self, state: State, error: BaseException, counts: str) -> Steps[None]:
        """Look for what would mend a violation, and raise it."""
        self.count()
        counts = counts.format(self.result)  # before other disks are looked at
        advice = yield from self._advise(state)
        self.tell(state, error, advice, counts)

    def tell(self, state: State, error: BaseException, advice: list[str], counts: str) -> NoReturn:
        """Raise a violation.

        Raises:
            Violation: always; the text is the report.
        """
        task = self._task
        replay = str(state.replay_id(task.ordinal))
        self.result.verdict, self.result.replay = "VIOLATED", replay
        self._build(state)
        kept_at = task.keep(task.home) if task.keep else None
        text = report(state, error, advice, counts, kept_at, (task.test, replay) if task.test else None)
        kind = ErrorBug if state.run.injected else CrashBug
        # The report says what the check said and where, so the error is not shown again.
        raise kind(text.replace(str(task.home.path), "home"), replay) from None

    def _advise(self, state: State) -> Steps[list[str]]:
        """Look for the fsyncs that are missing, one after the other, until no disk breaks the check."""
        missing = first_missing_sync(state)
        if missing is None:
            return without_missing_sync(state)
        until = now() + self._task.bounds.seconds
        before, of, _ = yield from self._violations(state.run, until)
        after, among, broken = yield from self._violations(missing.run, until)
        lines = [
            f"{missing.advice[0].upper()}{missing.advice[1:]} would make this state impossible.",
            f"With it {after:,} of {among:,} disks break the check, without it {before:,} of {of:,}.",
        ]
        while broken is not None and len(lines) < _MOST_ADVICE and (missing := first_missing_sync(broken)):
            after, among, broken = yield from self._violations(missing.run, until)
            lines.append(f"With {missing.advice} as well, {after:,} of {among:,} do.")
        return lines

    def _violations(self, run: CrashedRun, until: float) -> Steps[tuple[int, int, State | None]]:
        """Count the disks that break the check, within a small bound, and give the one that lost the least."""
        broken: list[State] = []
        tried = 0
        for state in distinct_states(run, Counters(time_left=lambda: now() <= until)):
            tried += 1
            if (yield from self.check(state)) is not None:
                broken.append(state)
            if tried >= _COUNTED:
                break
        return len(broken), tried, min(broken, key=lambda state: len(state.lost()), default=None)

    def _replay(self, run: CrashedRun, replay: ReplayId) -> Steps[None]:
        self.result.replayed = True
        if replay.failed is not None:
            raise has_changed(replay.failed)
        crash, *later = replay.crashes
        state = find(dataclasses.replace(run, model=crash.model), crash)
        for crash in later:
            disk = self._build(state)
            with self.recording() as recorder:
                yield self._task.check, (disk,)
            state = find(second_run(state, recorder.trace()), crash)
        self.result.model, self.result.tried = state.run.model, 1
        error = yield from self.check(state)
        if error is not None and self._compare(state, _said(error)):
            yield from self._mend(state, error, REPLAYED)

    def _compare(self, state: State, said: Verdict) -> bool:
        """Check a state once more where the workload never ran; tell whether that agrees."""
        assert self._fresh is not None
        run, index, tree = state.run, state.point.index, state.tree()
        disk = (run.acked(index), run.effects(index), where_it_died(state))
        self._task.worlds.restore(run.worlds_at(index))
        try:
            verdict = self._fresh.check((tree.content(), tree.links(), self._task.worlds.all_portable(), disk))
        except CannotCompare as error:
            reason = f"the check cannot be run in a fresh process, to see if it relies on memory: {error}"
        else:
            if (verdict is None) == (said is None):
                return True
            here, there = ("fails", "passes") if said is not None else ("passes", "fails")
            reason = (
                f"the check {here} in the process of the workload and {there} in a fresh one ({said or verdict}): it "
                "relies on something in memory, which a crash would have taken. Use crash.ack(value) and disk.acked, "
                "or crash.world"
            )
        self.result.reasons = self.result.reasons or [reason]
        return False

    def _check_afresh(self, subject: Any) -> Verdict:
        content, links, worlds, (acked, effects, crash) = subject
        self._task.home.build(content, links)
        self._task.worlds.follow_all(worlds)
        try:
            call(self._task.check, Disk(self._task.home.path, acked, effects, lambda: crash))
        except FAILURES as error:
            return _said(error)
        return None

    def _elapsed(self) -> float:
        return now() - self._began

    def count(self) -> None:
        """Bring the result up to date."""
        self.result.possible = self.counters.possible
        self.result.distinct = self.counters.distinct
        self.result.skipped = self.counters.skipped + self.left
        self.result.seconds = self._elapsed()


class _Sample:
    """Some states of all that were tried, at most so many.

    The first is that of a run which nothing interrupted. The next is the one that most was promised of and that lost
    most: what memory holds helps it most. The others are spread evenly.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._spread: list[State] = []
        self._room = max(1, most - 1)
        self._count = 0
        self._stride = 1
        self._worst: State | None = None
        self._badness = (0, 0)

    @property
    def states(self) -> list[State]:
        worst = [self._worst] if self._worst and self._worst not in self._spread else []
        return [*self._spread[:1], *worst, *self._spread[1:]][: self._most]

    def take(self, state: State) -> None:
        if state.point.markers >= self._badness[0]:
            badness = (state.point.markers, len(state.lost()))
            if badness > self._badness:
                self._worst, self._badness = state, badness
        if self._count % self._stride == 0 and len(self._spread) == self._room:
            del self._spread[1::2]
            self._stride *= 2
        if self._count % self._stride == 0 and len(self._spread) < self._room:
            self._spread.append(state)
        self._count += 1


def _settle(recorder: Recorder) -> None:
    """Wait a little for threads that are about to end, such as that of a server which has just answered."""
    until = now() + _GRACE
    while now() < until and any(recorder.work.unfinished()):
        time.sleep(0.001)


def _copied(value: Any) -> Any:
    """Copy what was acknowledged, for a check may change it."""
    return value if isinstance(value, (str, int, float, bytes, type(None))) else copy.deepcopy(value)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
