"""Shrinking: of all disks that fail a check in the same way, find one that lost the least, at the earliest point."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import State
from pytest_wfstate.faults.sync_async import Steps

_TRIES = 300  # checks that shrinking one violation may cost
_MOST_BYTES = 2**30  # on the disks that are checked, in all
_FEWEST = 20  # checks, however large the disk
_MOST_SINGLES = 64  # things lost, to try each alone

Check = Callable[[State], Steps[BaseException | None]]
"""Checks a disk, and returns what the check raised."""


class _TriesUsedUp(Exception):
    """Ends shrinking at once: of a large disk, even to derive what would be tried next takes long."""


class Shrink:
    """A violation, and the smallest one found so far. `tries` is how many checks that may cost."""

    def __init__(self, state: State, error: BaseException, check: Check, tries: int = _TRIES) -> None:
        self.state = state
        self.error = error
        self._check = check
        self._tries = min(tries, max(_FEWEST, _MOST_BYTES // (state.point.size + 1)))

    def steps(self) -> Steps[None]:
        """Shrink until nothing smaller fails, or the tries are used up."""
        with contextlib.suppress(_TriesUsedUp):
            yield from self._shrink()

    def _shrink(self) -> Steps[None]:
        yield from self._first(_single_losses(self.state))
        larger: State | None = None
        while larger is not self.state:
            larger = self.state
            yield from self._restore()
            yield from self._first(_earlier(self.state))

    def _first(self, candidates: Iterable[State]) -> Steps[None]:
        """Take the first candidate that fails the check, too."""
        for candidate in candidates:
            if (yield from self._takes(candidate)):
                return

    def _restore(self) -> Steps[None]:
        """Restore what was lost, one thing after the other, in whole or in part."""
        for part in range(len(self.state.loss)):
            yield from self._restore_many(part)
            for axis, lost in self.state.loss[part]:
                yield from self._first(self.state.with_position(part, axis, position) for position in range(lost))

    def _restore_many(self, part: int) -> Steps[None]:
        """Restore half of what a part lost, then a quarter, and so on: a large file lost thousands of sectors."""
        size = len(self.state.loss[part]) // 2
        while size > 1:
            for start in range(0, len(self.state.loss[part]), size):
                loss = self.state.loss[part]
                yield from self._takes(self.state.with_loss(part, (*loss[:start], *loss[start + size :])))
            size //= 2

    def _takes(self, candidate: State) -> Steps[bool]:
        if self._tries <= 0:
            raise _TriesUsedUp
        self._tries -= 1
        error = yield from self._check(candidate)
        if error is not None:
            self.state, self.error = candidate, error
        return error is not None


def _single_losses(state: State) -> Iterator[State]:
    """Yield states in which one of the losses is the only one."""
    if not 1 < sum(map(len, state.loss)) <= _MOST_SINGLES:
        return
    kept = dataclasses.replace(state, loss=state.point.kept)
    for part, loss in enumerate(state.loss):
        for axis, position in loss:
            yield kept.with_position(part, axis, position)


def _earlier(state: State) -> Iterator[State]:
    """Yield states at earlier points that lose just the same."""
    for point in crash_points(state.run.trace, state.run.model):
        if state.run.since <= point.index < state.point.index:
            candidate = state.at(point)
            if candidate.lost() == state.lost():
                yield candidate
