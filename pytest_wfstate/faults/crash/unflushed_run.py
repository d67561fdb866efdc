"""Runs in which an fsync failed, and the power cuts after it.

The kernel marks what it could not flush as clean, so that a later fsync succeeds and flushes nothing. Many disks after
such a failure are those of any power cut, which another test is about. To tell them apart, each is compared with the
disk that the same power cut leaves if the fsync had succeeded.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

from pytest_wfstate.faults.crash.shrink import Check
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, State, distinct_states
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import Fsync, Item, Trace

_MOST_DISKS = 1000  # of the uninterrupted run


class UnflushedRun:
    """A run since its first failed fsync, and the same run as if that had succeeded."""

    def __init__(self, run: CrashedRun) -> None:
        items = run.trace.items
        failed = next(index for index, item in enumerate(items) if _failed(item))
        self.run = dataclasses.replace(run, since=failed + 1)
        flushed: list[Item] = [
            dataclasses.replace(item, failed=False) if isinstance(item, Fsync) else item for item in items
        ]
        self._flushed = dataclasses.replace(self.run, trace=Trace(run.trace.start, flushed, run.trace.began))

    @functools.cached_property
    def _points(self) -> dict[int, CrashPoint]:
        return {point.index: point for point in crash_points(self._flushed.trace, self._flushed.model)}

    def is_cause(self, state: State, check: Check) -> Steps[bool]:
        """Whether a disk that fails the check passes it if the fsync had succeeded."""
        flushed = dataclasses.replace(state.at(self._points[state.point.index]), run=self._flushed)
        return (yield from check(flushed)) is None


def failed_to_flush(trace: Trace) -> bool:
    """Whether an fsync of a run failed."""
    return any(map(_failed, trace.items))


def _failed(item: Item) -> bool:
    return isinstance(item, Fsync) and item.failed


class WholeRun:
    """The run in which nothing failed, and the disks of its power cuts that fail the check."""

    def __init__(self, run: CrashedRun, check: Check) -> None:
        self._run = run
        self._check = check
        self._failing: set[bytes] | None = None

    def fails(self) -> Steps[bool]:
        """Whether there is such a disk."""
        return bool((yield from self._disks()))

    def fails_with(self, state: State) -> Steps[bool]:
        """Whether such a disk holds the same as that of a state."""
        return state.point.key(state.loss) in (yield from self._disks())

    def _disks(self) -> Steps[set[bytes]]:
        if self._failing is None:
            failing = set()
            for state in itertools.islice(distinct_states(self._run, Counters()), _MOST_DISKS):
                if (yield from self._check(state)) is not None:
                    failing.add(state.point.key(state.loss))
            self._failing = failing
        return self._failing
