"""Runs in which an fsync failed, and the power cuts after it.

The kernel marks what it could not flush as clean, so that a later fsync succeeds and flushes nothing. Many disks after
such a failure are those of any power cut, which another test is about. To tell them apart, each is compared with the
disk that the same power cut leaves if the fsync had succeeded, and with those that an earlier one leaves.

If the success of the fsync would not have helped, the disk is due to what was done after the error. That is reported
unless the run without an error has the same bug: then a power cut breaks that by losing the same kinds of operations on
the same kinds of files, or some of them. Neither contents nor lines can be compared: a database has random bytes, and
an error is handled in other lines.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

from pytest_wfstate.faults.crash.shrink import Check
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.order import CallSite, call_sites
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, State, distinct_states
from pytest_wfstate.faults.sync_async import Steps
from pytest_wfstate.faults.trace.ops import Fsync, Item, Trace

Losses = frozenset[tuple[str, str]]
"""The kinds of operations that a disk lost, each with the suffix of its file."""

_MOST_DISKS = 1000  # of the run in which nothing failed
_MOST_LOOKS = 20_000  # combinations, to find those
_MOST_BYTES = 2**30  # on those disks, in all


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

    def is_older(self, state: State, check: Check) -> Steps[bool]:
        """Whether a power cut before the fsync failed leaves the same disk, which fails the check even then."""
        key = state.point.key(state.loss)
        for point in self._points_before:
            earlier = state.at(point)
            if point.key(earlier.loss) == key:
                return (yield from check(earlier)) is not None
        return False

    def losses(self, state: State, check: Check) -> Steps[Losses]:
        """Return what a disk that fails the check lost; nothing, if it fails even if it lost nothing."""
        kept = dataclasses.replace(state, loss=state.point.kept)
        return frozenset() if (yield from check(kept)) is not None else _losses(state, self._sites)

    @functools.cached_property
    def _sites(self) -> list[CallSite]:
        return call_sites(self.run.trace)

    @functools.cached_property
    def _points_before(self) -> list[CrashPoint]:
        """The points before it failed, the last one first."""
        points = crash_points(self.run.trace, self.run.model)
        return list(itertools.takewhile(lambda point: point.index < self.run.since, points))[::-1]


def failed_to_flush(trace: Trace) -> bool:
    """Whether an fsync of a run failed."""
    return any(map(_failed, trace.items))


def _failed(item: Item) -> bool:
    return isinstance(item, Fsync) and item.failed


class WholeRun:
    """The run in which nothing failed, and the disks of its power cuts that fail the check."""

    def __init__(self, run: CrashedRun, check: Check) -> None:
        self._states = itertools.islice(
            distinct_states(run, Counters(looks=_MOST_LOOKS, volume=_MOST_BYTES)), _MOST_DISKS
        )
        self._check = check
        self._failing: set[bytes] = set()
        self._losses: set[Losses] = set()
        self._sites = call_sites(run.trace)

    def fails_by_losing(self, losses: Losses) -> Steps[bool]:
        """Whether such a disk lost some of these, and nothing else; if these are none, whether one lost nothing."""
        while not any(lost <= losses and bool(lost) == bool(losses) for lost in self._losses):
            if not (yield from self._find_next()):
                return False
        return True

    def fails_with(self, state: State) -> Steps[bool]:
        """Whether such a disk holds the same as that of a state."""
        key = state.point.key(state.loss)
        while key not in self._failing:
            if not (yield from self._find_next()):
                return False
        return True

    def _find_next(self) -> Steps[bool]:
        """Look for one more such disk. Return False if there are no more."""
        for state in self._states:
            if (yield from self._check(state)) is not None:
                self._failing.add(state.point.key(state.loss))
                self._losses.add(_losses(state, self._sites))
                return True
        return False


def _losses(state: State, sites: Sequence[CallSite]) -> Losses:
    return frozenset(sites[index][1:] for index in state.lost())
