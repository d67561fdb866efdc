"""What the crash lab and the race lab share: settings, folders, bounds, and how an exploration is reported."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar, get_args

import pytest

from pytest_wfstate.faults.bounds import PROFILES, Bounds, Model, NotMeasured
from pytest_wfstate.faults.disk.home import Home, memory_home, need_real_disk
from pytest_wfstate.faults.remembered import NOTHING, Remembered
from pytest_wfstate.faults.replay_id import ReplayId, TraceChanged
from pytest_wfstate.faults.result import Result
from pytest_wfstate.faults.sync_async import Steps

__tracebackhide__ = True

Unmeasured = Literal["fail", "skip"]
"""What a test does whose exploration could not be measured."""

R = TypeVar("R", bound=Result)


class Exploration(Protocol[R]):
    """Disks or schedules to try, and what has been seen of them so far."""

    result: R

    def steps(self) -> Steps[None]:
        """Try them all."""


@dataclasses.dataclass(slots=True)
class Settings:
    """The options of the command line that explorations obey, and where their results go."""

    model: Model = "posix"
    bounds: Bounds = PROFILES["default"]
    home: str = "home"
    """The name of the folder that is passed to workloads."""
    replay_with: str | None = None
    """The command that replays a violation, up to its id."""
    replay: ReplayId | None = None
    remembered: Remembered = NOTHING
    keep: Callable[[Home], str] | None = None
    progress: Callable[[Any], None] = lambda _: None
    done: Callable[[Any], None] = lambda _: None


class Lab:
    """Explores what a test asks for, in folders that it removes."""

    explains = True
    """Whether it advises on a violation, for which it checks more disks."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._folders = contextlib.ExitStack()
        self._explorations = 0
        self._failed = False
        self._left = self._settings.bounds
        self._parts: int | None = None

    def divide(self, parts: int) -> None:
        """Share what the profile allows a clause of a suite among the next `parts` explorations.

        Each may use an equal part of what is left, so what one does not use is for those after it.
        """
        bounds = self._settings.bounds
        self._left, self._parts = bounds.share(bounds.clause_parts), parts

    def close(self) -> None:
        """Remove every folder that was made.

        Raises:
            TraceChanged: the replay id belongs to an exploration that the test did not reach.
        """
        self._folders.close()
        replay = self._settings.replay
        if replay is not None and replay.ordinal > self._explorations and not self._failed:
            raise TraceChanged(
                f"'{replay}' belongs to exploration {replay.ordinal} of a test, but this test made "
                f"{self._explorations}, so nothing was replayed. Run the test without --wfstate-replay."
            )

    def _home(self) -> Home:
        need_real_disk()
        return self._folders.enter_context(memory_home(self._settings.home))

    @property
    def _bounds(self) -> Bounds:
        bounds = self._settings.bounds if self._parts is None else self._left.share(max(1, self._parts))
        return bounds if self.explains else dataclasses.replace(bounds, advised=0)

    def _measure(self, exploration: Exploration[R], unmeasured: Unmeasured) -> Steps[R]:
        """Run an exploration and report how it ended.

        Raises:
            NotMeasured: it could not be measured, or not completed, and that is not to skip the test.
        """
        need_known("unmeasured", unmeasured, get_args(Unmeasured))
        with self._reporting(exploration.result):
            yield from exploration.steps()
        self._need_verdict(exploration.result, unmeasured)
        return exploration.result

    def _need_verdict(self, result: Result, unmeasured: Unmeasured = "fail") -> None:
        reasons = result.unmeasured()
        if reasons and unmeasured == "skip":
            pytest.skip(f"{result.verdict}: {'; '.join(reasons)}")  # in one line, as pytest shows it
        if reasons:
            raise NotMeasured("\n- ".join([f"{result.verdict}, so neither a pass nor a violation:", *reasons]))

    @contextlib.contextmanager
    def _reporting(self, result: Result) -> Iterator[None]:
        """Count an exploration, and report how it ended, even if it raises."""
        self._explorations += 1
        try:
            yield
        finally:
            self._failed |= result.verdict != "CLEAN"
            if self._parts is not None:
                self._left, self._parts = self._left.without(result.used()), self._parts - 1
            if result.replay:
                self._settings.remembered.add(result.replay)
            self._settings.done(result)


def need_known(name: str, value: object, known: Sequence[str]) -> None:
    """Raise ValueError unless an argument has one of the known values."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}, which is unknown. One of: {', '.join(known)}.")
