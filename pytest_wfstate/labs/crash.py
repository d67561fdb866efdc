"""The crash lab, as a test sees it: the `crash` fixture."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.faults.bounds import MODELS, CheckFails, Children, Model, NotMeasured
from pytest_wfstate.faults.crash.explorer import Explorer
from pytest_wfstate.faults.crash.failing_gate import ERRORS
from pytest_wfstate.faults.crash.io_errors import ErrorRun
from pytest_wfstate.faults.crash.kill import NeverReached, kill
from pytest_wfstate.faults.crash.points import Event, Point, need_point
from pytest_wfstate.faults.crash.report import CrashBug, ErrorBug
from pytest_wfstate.faults.crash.task import CrashResult, CrashTask
from pytest_wfstate.faults.disk.home import Disk, NoRealDisk
from pytest_wfstate.faults.record.active import active
from pytest_wfstate.faults.replay_id import TraceChanged
from pytest_wfstate.faults.source_lines import causing_line
from pytest_wfstate.faults.sync_async import Steps, async_twin, beside_loop, sync_method
from pytest_wfstate.faults.trace.ops import Ack
from pytest_wfstate.faults.world.state import CannotCopy
from pytest_wfstate.faults.world.world import Worlds
from pytest_wfstate.labs.lab import Lab, Settings, Unmeasured, need_known

__tracebackhide__ = True

__all__ = [
    "CannotCopy",
    "CheckFails",
    "Crash",
    "CrashBug",
    "CrashResult",
    "Disk",
    "ErrorBug",
    "NeverReached",
    "NoRealDisk",
    "NotMeasured",
    "TraceChanged",
]

Workload = Callable[..., Any]


class Crash(Lab):
    """Crashes code that writes files, everywhere it can crash.

    A *workload* is called with a folder, home, and does its work there. A *check* is called with a `Disk` that a crash
    left, and raises if that disk is wrong. Both may be async.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._worlds = Worlds()

    @sync_method
    def explore(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        model: Model | None = None,
        depth: int = 1,
        unmeasured: Unmeasured = "fail",
        children: Children = "forbid",
    ) -> Steps[CrashResult]:
        """Record `workload`, derive every disk that a crash could have left, and check each.

        If it has several threads or tasks, it is recorded in several orders, each from what `setup` left.

        Raises:
            CrashBug: one of them fails the check.
            NotMeasured: the lab could not see what the workload did.
        """
        task = self._task(workload, check, setup, model=model, depth=depth, children=children)
        return (yield from self._measure(Explorer(task), unmeasured))

    aexplore = async_twin(explore)

    @sync_method
    def errors(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        errors: Sequence[str] = ERRORS,
        unmeasured: Unmeasured = "fail",
    ) -> Steps[CrashResult]:
        """Fail each file operation with each error, in a run of its own, and check the disk that run leaves.

        A full disk (ENOSPC, EDQUOT) stays full until something is deleted; other errors strike once.

        Raises:
            ErrorBug: a disk fails the check.
            NotMeasured: the lab could not see what the workload did.
        """
        return (yield from self._measure(ErrorRun(self._task(workload, check, setup), errors), unmeasured))

    aerrors = async_twin(errors)

    @sync_method
    def kill(self, workload: Workload, *, at: Point, setup: Workload | None = None, timeout: float = 30) -> Steps[Disk]:
        """Run `workload` in a child process that SIGKILL ends at a point, and return the disk that it left.

        With `akill` the event loop runs on while the child does.

        Raises:
            NeverReached: the child did not reach the point.
        """
        need_point(at)
        home = self._home()
        if setup is not None:
            yield setup, (home.path,)
        disk: Disk = yield beside_loop, (kill, workload, at, home, self._worlds, timeout)
        return disk

    akill = async_twin(kill)

    @sync_method
    def points(self, workload: Workload, *, setup: Workload | None = None) -> Steps[list[str]]:
        """List what `workload` does, one line per file operation: each is a point to die before or after."""
        return (yield from Explorer(self._task(workload, lambda _: None, setup, model="kill")).points())

    apoints = async_twin(points)

    @staticmethod
    def before(what: str | Callable[..., Any], pattern: str = "*", *, nth: int = 1) -> Point:
        """Name the point right before a file operation, or a call of a function."""
        return Point(None, Event(what, pattern), nth)

    @staticmethod
    def after(what: str | Callable[..., Any], pattern: str = "*", *, nth: int = 1) -> Point:
        """Name the point right after a file operation, or when a function has returned."""
        return Point(Event(what, pattern), None, nth)

    @staticmethod
    def between(first: str | Callable[..., Any], last: str | Callable[..., Any], *, nth: int = 1) -> Point:
        """Name the point right before `last`, once `first` is done."""
        return Point(Event(first), Event(last), nth)

    def world(
        self, target: Any, *, save: Callable[[], Any] | None = None, load: Callable[[Any], None] | None = None
    ) -> Any:
        """Return a stand-in for an object of the outside world, which does not crash with the workload.

        Each method call on it is one effect. Before each check its state at the crash is restored.
        """
        return self._worlds.add(target, save, load)

    def ack(self, value: Any = None) -> None:
        """Acknowledge something to the outside: from now on, no crash may undo it. For use in a workload."""
        recorder, worlds = active.recorder, self._worlds
        if worlds.send_ack is not None:
            worlds.send_ack(value)
        elif recorder is not None and recorder.log is worlds.log:  # else another lab of the test is at work
            try:
                copied = copy.deepcopy(value)
            except Exception as error:
                raise CannotCopy(f"{value!r} cannot be acknowledged, because it cannot be copied: {error}") from error
            recorder.log.strands.at_item()
            recorder.log.add(Ack(copied, causing_line()))

    def _task(
        self,
        workload: Workload,
        check: Workload,
        setup: Workload | None,
        *,
        model: Model | None = None,
        depth: int = 1,
        children: Children = "forbid",
    ) -> CrashTask:
        settings = self._settings
        model = settings.model if model is None else model
        need_known("model", model, MODELS)
        if depth not in (1, 2):
            raise ValueError(f"depth is {depth!r}. It is 1 (crash the workload) or 2 (crash the recovery as well).")
        return CrashTask(
            workload=workload,
            check=check,
            setup=setup,
            model=model,
            depth=depth,
            home=self._home(),
            worlds=self._worlds,
            bounds=self._bounds,
            children=children,
            replay_with=settings.replay_with,
            ordinal=self._explorations + 1,
            replay=settings.replay,
            remembered=settings.remembered,
            keep=settings.keep,
            progress=settings.progress,
        )
