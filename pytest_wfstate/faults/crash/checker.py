"""Checks of disks: in the test's own process, for speed, and for a sample of them again in a clean process."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any, NoReturn

from pytest_wfstate.errors import blamed, cause_of
from pytest_wfstate.faults.bounds import CheckFails
from pytest_wfstate.faults.crash.budget import Budget
from pytest_wfstate.faults.crash.clean_process import CannotCompare, CleanProcess, Verdict
from pytest_wfstate.faults.crash.report import CrashBug, ErrorBug, report, where_it_died
from pytest_wfstate.faults.crash.task import CrashTask
from pytest_wfstate.faults.disk.home import Disk
from pytest_wfstate.faults.disk.states import CrashedRun, State
from pytest_wfstate.faults.failures import CatchFailure
from pytest_wfstate.faults.report_text import error_name
from pytest_wfstate.faults.sync_async import Steps, call

__tracebackhide__ = True


class Checker:
    """Builds the disks of an exploration, runs the check on them, and concludes."""

    def __init__(self, task: CrashTask, budget: Budget) -> None:
        self._task = task
        self._budget = budget
        self._result = budget.result
        self._clean: CleanProcess | None = None
        self._known: tuple[CrashedRun, int, tuple[list[Any], list[str], list[Any]]] | None = None

    @contextlib.contextmanager
    def concluding(self) -> Iterator[None]:
        """Set the verdict unless the block raises; leave the worlds as they were found."""
        worlds = self._task.worlds.states()
        try:
            yield
            self._result.conclude()
        finally:
            if self._clean is not None:
                self._clean.close()
            self._task.worlds.restore(worlds)  # for the next exploration of the test
            self._budget.update()

    def fork(self) -> None:
        """Fork the clean process. What the test does from here on is not in its memory."""
        self._clean = CleanProcess(self._check_in_clean_process, self._task.worlds)

    def build(self, state: State) -> Disk:
        """Put a state on the disk, and the worlds back to what they were at the crash."""
        self._task.home.build(*state.image())
        acked, effects, worlds = self._outside(state.run, state.point.index)
        self._task.worlds.restore(worlds)
        return Disk(
            self._task.home.path, list(map(_copied, acked)), list(effects), functools.partial(where_it_died, state)
        )

    def check(self, state: State) -> Steps[BaseException | None]:
        """Build a disk and check it; return what the check raised."""
        disk = self.build(state)
        with CatchFailure() as caught:
            yield self._task.check, (disk,)
        return caught.error

    def check_uninterrupted(self, state: State, fault: str) -> Steps[None]:
        """Check the disk of a run that nothing interrupted.

        Raises:
            CheckFails: the check fails even there.
        """
        error = yield from self.check(state)
        if error is not None:
            raise CheckFails(
                f"Your check fails even without {fault}: {error_name(error)}. "
                "Fix it first: this is the disk of an uninterrupted run."
            ) from error  # which pytest shows, with its message

    def agrees(self, state: State, error: BaseException | None) -> bool:
        """Whether the clean process agrees about a disk. If not, that is a reason for NOT_MEASURED."""
        assert self._clean is not None
        run, index = state.run, state.point.index
        here = None if error is None else _message(error)
        disk = (run.acked(index), run.effects(index), where_it_died(state))
        self._task.worlds.restore(run.worlds_at(index))
        try:
            there = self._clean.check((state.image(), self._task.worlds.all_portable(), disk))
        except CannotCompare as problem:
            reason = f"the check cannot be run in a clean process, to see if it relies on memory: {problem}"
        else:
            if (there is None) == (here is None):
                return True
            outcomes = ("fails", "passes") if here is not None else ("passes", "fails")
            reason = (
                "the check {} in the workload's process and {} in a clean one ({}): it relies on something in memory, "
                "which a crash would have taken. Use crash.ack(value) and disk.acked, or crash.world"
            ).format(*outcomes, here or there)
        self._result.reasons = self._result.reasons or [reason]
        return False

    def fail(self, state: State, error: BaseException, advice: list[str], counts: str) -> Steps[NoReturn]:
        """Raise the violation that a state is. The check runs once more, to see its effects.

        Raises:
            Violation: always; the text is the report.
        """
        task = self._task
        replay = str(state.replay_id(task.ordinal))
        self._result.verdict, self._result.replay = "VIOLATED", replay
        with task.worlds.collecting() as effects:
            yield from self.check(state)
        self.build(state)
        kept_at = task.keep(task.home) if task.keep else None
        replayed = (task.replay_with, replay) if task.replay_with else None
        text = report(state, effects, error, advice, counts, kept_at, replayed)
        kind = ErrorBug if state.run.injected else CrashBug
        # The report has the check's error and its line, so the error is not shown again.
        raise blamed(kind(text.replace(str(task.home.path), "home"), replay), cause_of(error)) from None

    def _outside(self, run: CrashedRun, index: int) -> tuple[list[Any], list[str], list[Any]]:
        """Return what the outside knows at a point. The last is kept: disks are built point by point."""
        if self._known is None or self._known[0] is not run or self._known[1] != index:
            self._known = (run, index, (run.acked(index), run.effects(index), run.worlds_at(index)))
        return self._known[2]

    def _check_in_clean_process(self, subject: Any) -> Verdict:
        image, worlds, (acked, effects, crash) = subject
        self._task.home.build(*image)
        self._task.worlds.follow_all(worlds)
        with CatchFailure() as caught:
            call(self._task.check, Disk(self._task.home.path, acked, effects, lambda: crash))
        return None if caught.error is None else _message(caught.error)


class Sample:
    """At most `most` of the states that were checked, to be checked again in the clean process.

    The first is that of a run which nothing interrupted. The next is the one with the most acknowledged and, among
    those, the most lost: a check that relies on memory is most likely to show it there. The others are spread evenly.
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
        """The sample, the most telling first."""
        worst = [self._worst] if self._worst and self._worst not in self._spread else []
        return [*self._spread[:1], *worst, *self._spread[1:]][: self._most]

    def take(self, state: State) -> None:
        """Consider a state."""
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


def _copied(value: Any) -> Any:
    """Copy what was acknowledged, for a check may change it."""
    return value if isinstance(value, (str, int, float, bytes, type(None))) else copy.deepcopy(value)


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
