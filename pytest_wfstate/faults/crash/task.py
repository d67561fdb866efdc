"""A task of the crash lab: what to run, what to check, and the result that it adds up to."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from pytest_wfstate.faults.bounds import Bounds, Children, Model
from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.record.gate import Gate
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.result import Result, count
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.world.world import Worlds

__tracebackhide__ = True

_GRACE = 0.2  # seconds for the threads of a workload to end after it has

NOTHING_WRITTEN = "nothing was written below home: write to the folder that is passed to the workload"


@dataclasses.dataclass(slots=True)
class CrashResult(Result):
    """What an exploration of crashes or of I/O errors has seen."""

    model: Model
    possible: int = 0
    """Combinations of what could be kept and lost, over all points of the run."""
    distinct: int = 0
    """Different disks among those that were looked at."""

    def __str__(self) -> str:
        skipped = f", {count(self.skipped)} skipped" if self.skipped else ""
        return (
            f"{self.model}: {self.tried:,} distinct disks checked of {count(self.possible)} possible combinations"
            f"{skipped}, in {self.seconds:.2f} s"
        )

    def numbers(self) -> dict[str, Any]:
        """Return what can be counted, by name."""
        return {
            "model": self.model,
            "states": self.tried,
            "possible": count(self.possible),
            "seconds": round(self.seconds, 3),
        }

    def progress(self) -> str:
        """Return a short text for the live line."""
        return f"{self.tried:,} disks checked, {count(self.possible)} combinations"


@dataclasses.dataclass(slots=True)
class CrashTask:
    """What to explore, and how."""

    workload: Callable[..., Any]
    check: Callable[..., Any]
    setup: Callable[..., Any] | None
    model: Model
    depth: int
    home: Home
    worlds: Worlds
    bounds: Bounds
    children: Children = "forbid"
    test: str | None = None
    ordinal: int = 1
    """Which exploration of the test it is."""
    replay: ReplayId | None = None
    keep: Callable[[Home], str] | None = None
    progress: Callable[[CrashResult], None] = lambda _: None

    def set_up(self) -> Steps[None]:
        """Call `setup`, if there is one."""
        if self.setup is not None:
            yield self.setup, (self.home.path,)

    @contextlib.contextmanager
    def recording(self, gate: Gate | None = None) -> Iterator[Recorder]:
        """Record what happens below home, and to the outside world."""
        with Recorder(self.home.path, gate, self.children) as recorder:
            self.worlds.log = recorder.log
            try:
                yield recorder
                _settle(recorder)
            finally:
                self.worlds.log = None


def _settle(recorder: Recorder) -> None:
    """Wait a little for threads that are about to end, such as one of a server that has just answered."""
    until = now() + _GRACE
    while now() < until and any(recorder.work.unfinished()):
        time.sleep(0.001)
