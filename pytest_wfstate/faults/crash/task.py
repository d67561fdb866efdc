"""A task of the crash lab: what to run, what to check, and the result that it adds up to."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pytest_wfstate.faults.bounds import Bounds, Children, Model
from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.real_clock import now, processor_time
from pytest_wfstate.faults.record.gate import Gate
from pytest_wfstate.faults.record.rebind import FoundReferences
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.remembered import NOTHING, Remembered
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.result import Result, count
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.world.world import Worlds

__tracebackhide__ = True

_GRACE = 0.2  # seconds for the threads of a workload to end after it has
_PATIENCE = 2.0  # seconds of processor time for those that are busy

NOTHING_WRITTEN = "nothing was written below home: write to the folder that is passed to the workload"


@dataclasses.dataclass(slots=True)
class CrashResult(Result):
    """What an exploration of crashes or of I/O errors has seen."""

    model: Model
    possible: int = 0
    """Combinations of what could be kept and lost, over all points of the run."""
    looked: int = 0
    """Combinations that were derived."""
    derived: int = 0
    """Bytes on the disks that were looked at."""
    runs: int = 0
    """Runs of the workload in which an operation failed."""
    distinct: int = 0
    """Different disks among those that were derived."""
    sites: int = 0
    """Lines of code that made file operations."""
    crashed: int = 0
    """Those of them after which a crash was tried, or at which an operation failed."""
    struck: Literal["crashed", "failed"] = "crashed"
    """What was done to them."""
    orders: list[str] = dataclasses.field(default_factory=list)
    """The orders of threads and tasks that were explored: "" is how they ran by themselves."""
    not_recorded: str = ""
    """Why the workload was not recorded in more orders."""

    def __str__(self) -> str:
        skipped = f", {count(self.skipped)} skipped" if self.skipped else ""
        orders = f", {len(self.orders)} orders of its threads and tasks" if len(self.orders) > 1 else ""
        reason = f"; {self.not_recorded}" if self.not_recorded else ""
        return (
            f"{self.model}: {self.tried:,} distinct disks checked of {count(self.possible)} possible combinations"
            f"{skipped}{orders}, in {self.seconds:.2f} s{reason}"
        )

    def covered(self) -> str:
        """Describe how much was tried of what is possible."""
        sites = f", {self.crashed} of {self.sites} call sites {self.struck}" if self.sites else ""
        return f"{count(self.looked)} of {count(self.possible)} combinations{sites}"

    def not_tried(self) -> str:
        """Describe what the safety net left out."""
        return f"{count(self.skipped)} of {count(self.possible)} combinations"

    def used(self) -> dict[str, int]:
        """Return how much of each shared bound it used, by name."""
        return {"states": self.tried, "looks": self.looked, "volume": self.derived, "runs": self.runs}

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
    replay_with: str | None = None
    """The command that replays a violation, up to its id."""
    ordinal: int = 1
    """Which exploration of the test it is."""
    replay: ReplayId | None = None
    remembered: Remembered = NOTHING
    keep: Callable[[Home], str] | None = None
    progress: Callable[[CrashResult], None] = lambda _: None
    references: FoundReferences = dataclasses.field(default_factory=FoundReferences)

    def remembered_crashes(self) -> list[ReplayId]:
        """Return the disks that failed in earlier runs of this exploration, as far as it asks for such."""
        return [
            replay
            for replay in self.remembered.ids()
            if replay.ordinal == self.ordinal
            and replay.race is None
            and len(replay.crashes) <= self.depth
            and all(crash.model == self.model for crash in replay.crashes)
        ]

    def set_up(self) -> Steps[None]:
        """Call `setup`, if there is one."""
        if self.setup is not None:
            yield self.setup, (self.home.path,)

    @contextlib.contextmanager
    def recording(self, gate: Gate | None = None, order: str = "") -> Iterator[Recorder]:
        """Record what happens below home, and to the outside world."""
        with Recorder(self.home.path, gate, self.children, self.references, order) as recorder:
            self.worlds.log = recorder.log
            try:
                yield recorder
                recorder.log.strands.main.has_ended = True
                _settle(recorder)
            finally:
                self.worlds.log = None


def _settle(recorder: Recorder) -> None:
    """Wait a little for threads that are about to end, such as one of a server that has just answered.

    One that has something to do is waited for longer: on a busy machine it may not get to it.
    """
    until, used = now() + _GRACE, processor_time()
    while any(recorder.work.unfinished()):
        if now() > until and (not recorder.is_busy() or processor_time() - used > _PATIENCE):
            return
        time.sleep(0.001)
