"""Errors: a workload in which one file operation after the other fails, and what it leaves each time.

Each op in turn fails with each error, in a run of its own, until a run comes to its end untouched. A failed fsync also
lies: what was dirty counts as clean, so later fsyncs do not bring it to the disk, and a power cut is tried after it.
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
from pytest_wfstate.faults.explore import FAILURES, CheckFails, Exploration, Explorer, Steps, Task
from pytest_wfstate.faults.ops import Ack, Effect, Fsync, Item
from pytest_wfstate.faults.record import Intent, Recorder
from pytest_wfstate.faults.states import Life, Tally, distinct_states
from pytest_wfstate.faults.violation import said

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

    def __init__(self, failure: Failure) -> None:
        self._failure = failure
        self.count = 0
        self.struck: Intent | None = None

    def before(self, intent: Intent) -> int | None:
        """Fail if it is this op's turn."""
        self.count += 1
        if self.count != self._failure.number or not self._failure.applies(intent):
            return None
        self.struck = intent
        if self._failure.error == "short":
            return intent.size // 2
        number = getattr(errno, self._failure.error)
        raise OSError(number, os.strerror(number), intent.path)

    def after(self, *_: object) -> None:
        """Go on."""


class ErrorRun:
    """Every op, every error, one run each."""

    def __init__(self, task: Task, errors: tuple[str, ...]) -> None:
        for error in errors:
            if error != "short" and not hasattr(errno, error):
                raise ValueError(f"{error!r} is no error. Give names from errno, such as 'ENOSPC', or 'short'.")
        self._task = task
        self._errors = errors
        self._explorer = Explorer(task)
        self.result: Exploration = self._explorer.result

    def steps(self) -> Steps:
        """Do it all. Gives the calls to make; returns an `Exploration`, whose states are runs and power cuts.

        Raises:
            ErrorBug: a disk was found that the check does not accept.
        """
        task = self._task
        if task.setup is not None:
            yield task.setup, (task.home.path,)
        start, worlds = task.home.content(), task.worlds.states()
        ops = yield from self._run(Failure(0, "EIO"), start, worlds)
        for number in range(1, ops + 1):
            for error in self._errors:
                yield from self._run(Failure(number, error), start, worlds)
        self._explorer.count()
        return self.result

    def _run(self, failure: Failure, start: Content, worlds: list[Any]) -> Generator[Any, Any, int]:
        task = self._task
        task.home.build(start)
        task.worlds.put_back(worlds)
        saboteur = Saboteur(failure)
        raised: BaseException | None = None
        recording = self._explorer.recording(saboteur)
        with recording as recorder:
            try:
                yield task.workload, (task.home.path,)
            except FAILURES as error:
                raised = error
        if raised is not None and saboteur.struck is None:
            raise raised
        if failure.number and saboteur.struck is None:
            return saboteur.count  # this op cannot fail like this
        self.result.reasons += [reason for reason in recorder.unmeasured if reason not in self.result.reasons]
        yield from self._check_end(failure, saboteur, recorder, raised)
        if saboteur.struck is not None and saboteur.struck.kind in ("fsync", "fdatasync"):
            yield from self._check_power_cuts(failure, saboteur, recorder, tuple(worlds), raised)
        return saboteur.count

    def _check_end(
        self, failure: Failure, saboteur: Saboteur, recorder: Recorder, raised: BaseException | None
    ) -> Steps:
        task = self._task
        items = recorder.log.items
        told = _told(failure, saboteur)
        disk = Disk(task.home.path, _acked(items), _effects(items), lambda: told)
        self.result.tried += 1
        try:
            yield task.check, (disk,)
        except FAILURES as error:
            if failure.number == 0:
                raise CheckFails(f"your check fails without any error: {type(error).__name__}: {error}.") from error
            raise ErrorBug(_report(disk, raised, error)) from None

    def _check_power_cuts(
        self,
        failure: Failure,
        saboteur: Saboteur,
        recorder: Recorder,
        worlds: tuple[Any, ...],
        raised: BaseException | None,
    ) -> Steps:
        trace = recorder.trace()
        failed = next(index for index, item in enumerate(trace.items) if isinstance(item, Fsync) and item.failed)
        life = Life(trace, self._task.model, worlds, since=failed + 1)
        for state in self._explorer.within_bounds(distinct_states(life, Tally())):
            error = yield from self._explorer.check(state)
            if error is not None:
                index = state.cut.index
                told = f"{_told(failure, saboteur)}; later the power was cut"
                disk = Disk(self._task.home.path, life.acked(index), life.effects(index), functools.partial(str, told))
                raise ErrorBug(_report(disk, raised, error)) from None


def _told(failure: Failure, saboteur: Saboteur) -> str:
    if saboteur.struck is None:
        return "nothing failed"
    how = "took only half of its bytes" if failure.error == "short" else f"failed with {failure.error}"
    return f"{saboteur.struck.kind} {saboteur.struck.path} (op {failure.number}) {how}"


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
        *(f"  {'the check said' if not number else '':16}{line}" for number, line in enumerate(said(error))),
    ]
    return "\n".join(lines)


def _acked(items: list[Item]) -> list[Any]:
    return [item.value for item in items if isinstance(item, Ack)]


def _effects(items: list[Item]) -> list[str]:
    return [item.call for item in items if isinstance(item, Effect)]
