"""The crash lab, as a test sees it: the `crash` fixture."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from pytest_wfstate.faults.cut import Model
from pytest_wfstate.faults.disk import Disk, Home, memory_home
from pytest_wfstate.faults.errors import ERRORS, ErrorBug, ErrorRun
from pytest_wfstate.faults.explore import PROFILES, Bounds, Exploration, Explorer, NotMeasured, Task
from pytest_wfstate.faults.kill import NeverReached, kill
from pytest_wfstate.faults.models import MODELS
from pytest_wfstate.faults.ops import Ack
from pytest_wfstate.faults.points import Event, Point
from pytest_wfstate.faults.replay_id import ReplayId, TraceChanged
from pytest_wfstate.faults.steps import arun, call, run
from pytest_wfstate.faults.violation import CrashBug
from pytest_wfstate.faults.world import Worlds
from pytest_wfstate.faults.world_state import CannotCopy

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

__all__ = ["Crash", "CrashBug", "Disk", "ErrorBug", "Exploration", "NeverReached", "NotMeasured"]

Workload = Callable[..., Any]
Unmeasured = Literal["fail", "skip"]


@dataclasses.dataclass(slots=True)
class Settings:
    """What the command line says about explorations, and where their results go."""

    model: Model = "posix"
    bounds: Bounds = PROFILES["default"]
    test: str | None = None
    replay: ReplayId | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[Exploration], None] = lambda _: None
    done: Callable[[Exploration], None] = lambda _: None


class Crash:
    """Crashes code that writes files, everywhere it can crash.

    A *workload* is called with a folder, home, and does its work there. A *check* is called with a `Disk` that a crash
    left, and raises if that is not acceptable. Both may be async.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._worlds = Worlds()
        self._open = contextlib.ExitStack()
        self._explorations = 0
        self._failed = False

    def close(self) -> None:
        """Remove every folder that was made.

        Raises:
            TraceChanged: there was a replay id, and the test did not come to the exploration that it is of.
        """
        self._open.close()
        replay = self._settings.replay
        if replay is not None and replay.ordinal > self._explorations and not self._failed:
            raise TraceChanged(
                f"'{replay}' is of exploration {replay.ordinal} of a test, and this test made {self._explorations}. "
                "Nothing was replayed. Run the test without --wfstate-replay."
            )

    def explore(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        model: Model | None = None,
        depth: int = 1,
        unmeasured: Unmeasured = "fail",
        children: Literal["forbid", "readonly"] = "forbid",
    ) -> Exploration:
        """Run `workload` once, derive every disk that a crash could have left, and check each.

        Raises:
            CrashBug: the check does not accept one of them.
            NotMeasured: the lab could not see what the workload did.
        """
        _no_loop("explore", "crash.aexplore(...)")
        explorer = self._explorer(workload, check, setup, model, depth, children)
        with self._telling(explorer.result):
            run(explorer.steps())
        _measured(explorer.result, unmeasured)
        return explorer.result

    async def aexplore(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        model: Model | None = None,
        depth: int = 1,
        unmeasured: Unmeasured = "fail",
        children: Literal["forbid", "readonly"] = "forbid",
    ) -> Exploration:
        """Do what `explore` does, on the running event loop."""
        explorer = self._explorer(workload, check, setup, model, depth, children)
        with self._telling(explorer.result):
            await arun(explorer.steps())
        _measured(explorer.result, unmeasured)
        return explorer.result

    def errors(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        errors: tuple[str, ...] = ERRORS,
        unmeasured: Unmeasured = "fail",
    ) -> Exploration:
        """Let each file operation fail in turn, with each error, and check what the workload leaves.

        Raises:
            ErrorBug: the check does not accept a disk.
            NotMeasured: the lab could not see what the workload did.
        """
        _no_loop("errors", "asyncio.to_thread(crash.errors, ...)")
        work = ErrorRun(self._task(workload, check, setup, None, 1, "forbid"), errors)
        with self._telling(work.result):
            run(work.steps())
        _measured(work.result, unmeasured)
        return work.result

    def kill(self, workload: Workload, *, at: Point, setup: Workload | None = None, timeout: float = 30) -> Disk:
        """Run `workload` in a child that really dies, by SIGKILL, at a point; give the disk that it left.

        Raises:
            NeverReached: the child did not come to the point.
        """
        _no_loop("kill", "asyncio.to_thread(crash.kill, ...)")
        home = self._home()
        if setup is not None:
            call(setup, home.path)
        return kill(workload, at, home, self._worlds, timeout)

    def points(self, workload: Workload, *, setup: Workload | None = None) -> list[str]:
        """List what `workload` does, one line per file operation: each is a point to die before or after."""
        home = self._home()
        explorer = Explorer(self._task(workload, lambda _: None, setup, "kill", 1, "forbid", home))
        lines: list[str] = run(explorer.points())
        return lines

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
        self,
        target: Any,
        *,
        save: Callable[[], Any] | None = None,
        load: Callable[[Any], None] | None = None,
    ) -> Any:
        """Give a stand-in for an object of the outside world, which does not crash with the workload.

        Each method call on it is one effect. Before each check it is put back to what it was at the crash.
        """
        return self._worlds.add(target, save, load)

    def ack(self, value: Any = None) -> None:
        """Promise something to the outside: from now on, no crash may undo it. For use in a workload."""
        if self._worlds.remote is not None:
            self._worlds.remote.ack(value)
        elif self._worlds.log is not None:
            try:
                kept = copy.deepcopy(value)
            except Exception as error:
                raise CannotCopy(f"{value!r} cannot be acknowledged: it cannot be copied ({error}).") from error
            self._worlds.log.add(Ack(kept, self._worlds.log.line()))

    def _task(
        self,
        workload: Workload,
        check: Workload,
        setup: Workload | None,
        model: Model | None,
        depth: int,
        children: str,
        home: Home | None = None,
    ) -> Task:
        model = model or self._settings.model
        if model not in MODELS:
            raise ValueError(f"{model!r} is no model of a disk. One of: {', '.join(MODELS)}.")
        if depth not in (1, 2):
            raise ValueError(f"depth is {depth}. It is 1 (crash the workload) or 2 (crash the recovery as well).")
        settings = self._settings
        return Task(
            workload=workload,
            check=check,
            setup=setup,
            model=model,
            depth=depth,
            home=home or self._home(),
            worlds=self._worlds,
            bounds=settings.bounds,
            children=children,
            test=settings.test,
            keep=settings.keep,
            progress=settings.progress,
        )

    def _explorer(
        self,
        workload: Workload,
        check: Workload,
        setup: Workload | None,
        model: Model | None,
        depth: int,
        children: str,
    ) -> Explorer:
        task = self._task(workload, check, setup, model, depth, children)
        self._explorations += 1
        task.ordinal, task.replay = self._explorations, self._settings.replay
        return Explorer(task)

    def _home(self) -> Home:
        return self._open.enter_context(memory_home())

    @contextlib.contextmanager
    def _telling(self, result: Exploration) -> Iterator[None]:
        """Report how an exploration ended, whichever way."""
        try:
            yield
        finally:
            self._failed |= result.verdict != "CLEAN"
            self._settings.done(result)


def _measured(result: Exploration, unmeasured: Unmeasured) -> None:
    if result.reasons:
        text = "NOT_MEASURED, so neither a pass nor a violation:\n" + "\n".join(f"- {one}" for one in result.reasons)
        if unmeasured == "skip":
            pytest.skip(text)
        raise NotMeasured(text)


def _no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"crash.{name} was called inside a running event loop, where it cannot run a workload of its own. "
        f"Use await {instead} there."
    )
