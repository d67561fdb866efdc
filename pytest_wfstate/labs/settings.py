"""A lab: what the crash lab and the race lab of a test share. It counts explorations, and reports how each ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from pytest_wfstate.faults.bounds import PROFILES, Bounds, Model, NotMeasured
from pytest_wfstate.faults.disk.home import Home, memory_home, need_real_disk
from pytest_wfstate.faults.replay_id import ReplayId, TraceChanged
from pytest_wfstate.faults.result import Result

# A failure is shown at the line of the test that asked for it.
__tracebackhide__ = True

Unmeasured = Literal["fail", "skip"]


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


class Lab:
    """Explores what a test asks for, in folders that it removes."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._folders = contextlib.ExitStack()
        self._explorations = 0
        self._failed = False
        self._left = self._settings.bounds
        self._parts: int | None = None

    def divide(self, parts: int) -> None:
        """Have what a bound allows be for the next so many explorations together.

        Each may do its part of what is left: so what one does not need is for those after it.
        """
        self._left, self._parts = self._settings.bounds, parts

    def close(self) -> None:
        """Remove every folder that was made.

        Raises:
            TraceChanged: there was a replay id, and the test did not come to the exploration that it is of.
        """
        self._folders.close()
        replay = self._settings.replay
        if replay is not None and replay.ordinal > self._explorations and not self._failed:
            raise TraceChanged(
                f"'{replay}' is of exploration {replay.ordinal} of a test, and this test made {self._explorations}. "
                "Nothing was replayed. Run the test without --wfstate-replay."
            )

    def _home(self) -> Home:
        need_real_disk()
        return self._folders.enter_context(memory_home(self._settings.home))

    @property
    def _bounds(self) -> Bounds:
        return self._settings.bounds if self._parts is None else self._left.share(max(1, self._parts))

    @contextlib.contextmanager
    def _telling(self, result: Result) -> Iterator[None]:
        """Count an exploration, and report how it ended, whichever way."""
        self._explorations += 1
        try:
            yield
        finally:
            self._failed |= result.verdict != "CLEAN"
            if self._parts is not None:
                self._left, self._parts = self._left.without(result.tried, result.seconds), self._parts - 1
            self._settings.done(result)


def need_measured(result: Result, unmeasured: Unmeasured) -> None:
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
