"""Shrinking: of all disks that fail a check in the same way, find one that lost the least, at the earliest point."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import State
from pytest_wfstate.faults.sync_async import Steps

_TRIES = 300  # checks that shrinking one violation may cost

Check = Callable[[State], Steps[BaseException | None]]
"""Checks a disk, and returns what the check raised."""


class Shrink:
    """A violation, and the smallest one found so far. `tries` is how many checks that may cost."""

    def __init__(self, state: State, error: BaseException, check: Check, tries: int = _TRIES) -> None:
        self.state = state
        self.error = error
        self._check = check
        self._tries = tries

    def steps(self) -> Steps[None]:
        """Shrink until nothing smaller fails, or the tries are used up."""
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
        for part, setting in enumerate(self.state.loss):
            for axis, lost in enumerate(setting):
                yield from self._first(self.state.with_position(part, axis, position) for position in range(lost))

    def _takes(self, candidate: State) -> Steps[bool]:
        self._tries -= 1
        error = (yield from self._check(candidate)) if self._tries >= 0 else None
        if error is not None:
            self.state, self.error = candidate, error
        return error is not None


def _single_losses(state: State) -> Iterator[State]:
    """Yield states in which one of the losses is the only one."""
    if sum(map(bool, itertools.chain(*state.loss))) < 2:
        return
    kept = dataclasses.replace(state, loss=state.point.kept)
    for part, setting in enumerate(state.loss):
        for axis, position in enumerate(setting):
            if position:
                yield kept.with_position(part, axis, position)


def _earlier(state: State) -> Iterator[State]:
    """Yield states at earlier points that lose just the same."""
    for point in crash_points(state.run.trace, state.run.model):
        if state.run.since <= point.index < state.point.index:
            candidate = state.at(point)
            if candidate.lost() == state.lost():
                yield candidate
