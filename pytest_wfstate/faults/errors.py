"""Errors: a workload in which one file operation after the other fails, and what it leaves each time.

Each op in turn fails with each error, in a run of its own. A failed fsync also lies: what was dirty counts as clean, so
later fsyncs do not bring it to the disk, and a power cut is tried after it.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
from collections.abc import Generator
from typing import Any

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.disk import Content, Disk
from pytest_wfstate.faults.explore import FAILURES, CheckFails, Exploration, Explorer, Task
from pytest_wfstate.faults.ops import Ack, Effect, Fsync
from pytest_wfstate.faults.record import Intent, Recorder
from pytest_wfstate.faults.states import Life, distinct_states
from pytest_wfstate.faults.steps import Steps
from pytest_wfstate.faults.violation import said, shown, where_it_died

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

ERRORS = ("ENOSPC", "EIO", "short")
_NEEDS_ROOM = {"create", "write", "truncate", "allocate", "mkdir", "link", "symlink", "rename"}


class ErrorBug(WfstateError, AssertionError):
    """After an I/O error the check does not accept the disk."""


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


class Saboteur:
    """Lets one op fail. It is the gate of a recorder."""

    def __init__(self, failure: Failure | None) -> None:
        self._failure = failure
        self.asked: list[Intent] = []
        """All ops, as they were about to be done."""
        self.struck: Intent | None = None

    def before(self, intent: Intent) -> int | None:
        """Fail if it is this op's turn."""
        self.asked.append(intent)
        failure = self._failure
        if failure is None or len(self.asked) != failure.number or not failure.applies(intent):
            return None
        self.struck = intent
        if failure.error == "short":
            return intent.size // 2
        number = getattr(errno, failure.error)
        raise OSError(number, os.strerror(number), intent.path)

    def after(self, *_: object) -> None:
        """Go on."""

    def told(self) -> str:
        """Say what failed."""
        if self._failure is None or self.struck is None:
            return "nothing failed"
        short = self._failure.error == "short"
        how = "took only half of its bytes" if short else f"failed with {self._failure.error}"
        return f"{self.struck.kind} {shown(self.struck.path)} (op {self._failure.number}) {how}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Ran:
    """A run in which an op may have failed."""

    saboteur: Saboteur
    recorder: Recorder
    raised: BaseException | None


class ErrorRun:
    """Every op, every error, one run each."""

    def __init__(self, task: Task, errors: tuple[str, ...]) -> None:
        for error in errors:
            if error != "short" and error not in errno.errorcode.values():
                raise ValueError(f"{error!r} is no error. Give names from errno, such as 'ENOSPC', or 'short'.")
        self._task = task
        self._errors = errors
        self._explorer = Explorer(task)
        self._start: tuple[Content, dict[str, str], list[Any]] = ({}, {}, [])
        self.result: Exploration = self._explorer.result

    def steps(self) -> Steps:
        """Do it all. Gives the calls to make; returns an `Exploration`, whose states are runs and power cuts.

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
            task.worlds.put_back(worlds)
            self._explorer.count()
        return self.result

    def _fail_all(self) -> Steps:
        whole = yield from self._run(None)
        if not whole.saboteur.asked:
            self.result.reasons.append("nothing was written below home: write to the folder that the workload is given")
        if self.result.reasons:
            return
        yield from self._check_end(whole, None)
        failures = [
            failure
            for number, intent in enumerate(whole.saboteur.asked, 1)
            for failure in (Failure(number, error) for error in self._errors)
            if failure.applies(intent)
        ]
        self._explorer.left = len(failures)
        self._explorer.begin()
        for failure in failures:
            if self.result.reasons or not self._explorer.may_go_on():
                return
            self._explorer.left -= 1
            yield from self._fail(failure)

    def _fail(self, failure: Failure) -> Steps:
        ran = yield from self._run(failure)
        struck = ran.saboteur.struck
        if struck is None:
            self.result.reasons.append(
                f"a run did not come to op {failure.number}, which was to fail: the workload is not always the same"
            )
        if self.result.reasons:
            return
        yield from self._check_end(ran, failure)
        if struck is not None and struck.kind in ("fsync", "fdatasync"):
            yield from self._check_power_cuts(ran)

    def _run(self, failure: Failure | None) -> Generator[Any, Any, _Ran]:
        task = self._task
        content, links, worlds = self._start
        task.home.build(content, links)
        task.worlds.put_back(worlds)
        saboteur = Saboteur(failure)
        raised: BaseException | None = None
        with self._explorer.recording(saboteur) as recorder:
            try:
                yield task.workload, (task.home.path,)
            except FAILURES as error:
                raised = error
        if raised is not None and saboteur.struck is None:
            raise raised
        self.result.reasons += recorder.unmeasured
        return _Ran(saboteur, recorder, raised)

    def _check_end(self, ran: _Ran, failure: Failure | None) -> Steps:
        """Check what the run has left."""
        items = ran.recorder.log.items
        acked = [item.value for item in items if isinstance(item, Ack)]
        effects = [item.call for item in items if isinstance(item, Effect)]
        disk = Disk(self._task.home.path, acked, effects, ran.saboteur.told)
        self.result.tried += 1
        self._explorer.tally.add_one()
        try:
            yield self._task.check, (disk,)
        except FAILURES as error:
            if failure is None:
                raise CheckFails(f"your check fails without any error: {type(error).__name__}: {error}.") from error
            self._violated(disk, ran, error)

    def _check_power_cuts(self, ran: _Ran) -> Steps:
        """Check what a power cut would leave, after an fsync that failed."""
        trace = ran.recorder.trace()
        failed = next(index for index, item in enumerate(trace.items) if isinstance(item, Fsync) and item.failed)
        life = Life(trace, self._task.model, tuple(self._start[2]), since=failed + 1)
        for state in self._explorer.within_bounds(distinct_states(life, self._explorer.tally)):
            error = yield from self._explorer.check(state)
            if error is not None:
                index = state.cut.index
                told = f"{ran.saboteur.told()}; later the power was cut, {where_it_died(state)}"
                disk = Disk(self._task.home.path, life.acked(index), life.effects(index), functools.partial(str, told))
                self._violated(disk, ran, error)

    def _violated(self, disk: Disk, ran: _Ran, error: BaseException) -> None:
        self.result.verdict = "VIOLATED"
        text = _report(disk, ran.raised, error).replace(str(self._task.home.path), "home")
        raise ErrorBug(text) from None  # the text says what the check said, and where


def _report(disk: Disk, raised: BaseException | None, error: BaseException) -> str:
    reaction = (
        "it went on as if nothing had happened" if raised is None else f"it raised {type(raised).__name__}: {raised}"
    )
    lines = [
        "after an I/O error the check does not accept the disk.",
        "",
        f"  what failed     {disk.crash}",
        f"  the workload    {reaction}",
        f"  acknowledged    {', '.join(map(repr, disk.acked)) or 'nothing'}",
        *([f"  effects         {', '.join(disk.effects)}"] if disk.effects else []),
        *(f"  {'the check said' if not number else '':16}{line}" for number, line in enumerate(said(error))),
    ]
    return "\n".join(lines)
