"""The crash lab, as a test sees it: the `crash` fixture."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import pytest

from pytest_wfstate.faults.cut import Model
from pytest_wfstate.faults.disk import Disk, Home, NoRealDisk, memory_home, need_real_disk
from pytest_wfstate.faults.errors import ERRORS, ErrorRun
from pytest_wfstate.faults.explore import PROFILES, Bounds, CheckFails, Exploration, Explorer, NotMeasured, Task
from pytest_wfstate.faults.kill import NeverReached, kill
from pytest_wfstate.faults.models import MODELS
from pytest_wfstate.faults.ops import Ack
from pytest_wfstate.faults.points import Event, Point, need_point
from pytest_wfstate.faults.replay_id import ReplayId, TraceChanged
from pytest_wfstate.faults.steps import Steps, acall, arun, call, run
from pytest_wfstate.faults.violation import CrashBug, ErrorBug
from pytest_wfstate.faults.world import Worlds
from pytest_wfstate.faults.world_state import CannotCopy

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

__all__ = [
    "CannotCopy",
    "CheckFails",
    "Crash",
    "CrashBug",
    "Disk",
    "ErrorBug",
    "Exploration",
    "NeverReached",
    "NoRealDisk",
    "NotMeasured",
    "TraceChanged",
]

Workload = Callable[..., Any]
Unmeasured = Literal["fail", "skip"]
Children = Literal["forbid", "readonly"]

UNMEASURED = ("fail", "skip")


@dataclasses.dataclass(slots=True)
class Settings:
    """What the command line says about explorations, and where their results go."""

    model: Model = "posix"
    bounds: Bounds = PROFILES["default"]
    home: str = "home"
    """The name of the folder that workloads are given."""
    test: str | None = None
    replay: ReplayId | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[Any], None] = lambda _: None
    done: Callable[[Any], None] = lambda _: None


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
        children: Children = "forbid",
    ) -> Exploration:
        """Run `workload` once, derive every disk that a crash could have left, and check each.

        Raises:
            CrashBug: the check does not accept one of them.
            NotMeasured: the lab could not see what the workload did.
        """
        need_no_loop("crash", "explore")
        _known("unmeasured", unmeasured, UNMEASURED)
        explorer = Explorer(self._task(workload, check, setup, model=model, depth=depth, children=children))
        with self._telling(explorer.result):
            run(explorer.steps())
        need_measured(explorer.result, unmeasured)
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
        children: Children = "forbid",
    ) -> Exploration:
        """Do what `explore` does, on the running event loop."""
        _known("unmeasured", unmeasured, UNMEASURED)
        explorer = Explorer(self._task(workload, check, setup, model=model, depth=depth, children=children))
        with self._telling(explorer.result):
            await arun(explorer.steps())
        need_measured(explorer.result, unmeasured)
        return explorer.result

    def errors(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        errors: Sequence[str] = ERRORS,
        unmeasured: Unmeasured = "fail",
    ) -> Exploration:
        """Let each file operation fail in turn, with each error, and check what the workload leaves.

        Raises:
            ErrorBug: the check does not accept a disk.
            NotMeasured: the lab could not see what the workload did.
        """
        need_no_loop("crash", "errors")
        _known("unmeasured", unmeasured, UNMEASURED)
        work = ErrorRun(self._task(workload, check, setup), errors)
        with self._telling(work.result):
            run(work.steps())
        need_measured(work.result, unmeasured)
        return work.result

    async def aerrors(
        self,
        workload: Workload,
        check: Workload,
        *,
        setup: Workload | None = None,
        errors: Sequence[str] = ERRORS,
        unmeasured: Unmeasured = "fail",
    ) -> Exploration:
        """Do what `errors` does, on the running event loop."""
        _known("unmeasured", unmeasured, UNMEASURED)
        work = ErrorRun(self._task(workload, check, setup), errors)
        with self._telling(work.result):
            await arun(work.steps())
        need_measured(work.result, unmeasured)
        return work.result

    def kill(self, workload: Workload, *, at: Point, setup: Workload | None = None, timeout: float = 30) -> Disk:
        """Run `workload` in a child that really dies, by SIGKILL, at a point; give the disk that it left.

        Raises:
            NeverReached: the child did not come to the point.
        """
        need_no_loop("crash", "kill")
        need_point(at)
        home = self._home()
        if setup is not None:
            call(setup, home.path)
        return kill(workload, at, home, self._worlds, timeout)

    async def akill(self, workload: Workload, *, at: Point, setup: Workload | None = None, timeout: float = 30) -> Disk:
        """Do what `kill` does, from a running event loop. `setup` runs on it, and it goes on while the child lives."""
        need_point(at)
        home = self._home()
        if setup is not None:
            await acall(setup, home.path)
        return await asyncio.to_thread(kill, workload, at, home, self._worlds, timeout)

    def points(self, workload: Workload, *, setup: Workload | None = None) -> list[str]:
        """List what `workload` does, one line per file operation: each is a point to die before or after."""
        need_no_loop("crash", "points")
        lines: list[str] = run(self._points(workload, setup))
        return lines

    async def apoints(self, workload: Workload, *, setup: Workload | None = None) -> list[str]:
        """Do what `points` does, on the running event loop."""
        lines: list[str] = await arun(self._points(workload, setup))
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

    def _points(self, workload: Workload, setup: Workload | None) -> Steps:
        return Explorer(self._task(workload, lambda _: None, setup, model="kill")).points()

    def _task(
        self,
        workload: Workload,
        check: Workload,
        setup: Workload | None,
        *,
        model: Model | None = None,
        depth: int = 1,
        children: Children = "forbid",
    ) -> Task:
        settings = self._settings
        model = settings.model if model is None else model
        _known("model", model, MODELS)
        if depth not in (1, 2):
            raise ValueError(f"depth is {depth!r}. It is 1 (crash the workload) or 2 (crash the recovery as well).")
        return Task(
            workload=workload,
            check=check,
            setup=setup,
            model=model,
            depth=depth,
            home=self._home(),
            worlds=self._worlds,
            bounds=settings.bounds,
            children=children,
            test=settings.test,
            ordinal=self._explorations + 1,
            replay=settings.replay,
            keep=settings.keep,
            progress=settings.progress,
        )

    def _home(self) -> Home:
        need_real_disk()
        return self._open.enter_context(memory_home(self._settings.home))

    @contextlib.contextmanager
    def _telling(self, result: Exploration) -> Iterator[None]:
        """Count an exploration, and report how it ended, whichever way."""
        self._explorations += 1
        try:
            yield
        finally:
            self._failed |= result.verdict != "CLEAN"
            self._settings.done(result)


def need_measured(result: Any, unmeasured: Unmeasured) -> None:
    """Refuse to pass what could not be seen: `result` has the reasons.

    Raises:
        NotMeasured: there are some.
    """
    if not result.reasons:
        return
    if unmeasured == "skip":
        pytest.skip(f"NOT_MEASURED: {'; '.join(result.reasons)}")  # in one line, as pytest shows it
    raise NotMeasured(
        "NOT_MEASURED, so neither a pass nor a violation:\n" + "\n".join(f"- {one}" for one in result.reasons)
    )


def _known(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}, which is unknown. One of: {', '.join(known)}.")


def need_no_loop(fixture: str, name: str) -> None:
    """Refuse to work inside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{fixture}.{name} was called inside a running event loop, where it cannot run a workload of its own. "
        f"Use `await {fixture}.a{name}(...)` there: it takes the same arguments."
    )
