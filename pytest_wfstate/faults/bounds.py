"""The bounds and profiles of an exploration, the names of its choices, and the two errors of one without a verdict.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import pytest

from pytest_wfstate.errors import WfstateError

FAILURES = (Exception, SystemExit, pytest.fail.Exception)
"""What a check raises when it fails."""

Model = Literal["kill", "ext4", "xfs", "posix"]
"""What a disk keeps in a crash."""
MODELS: tuple[Model, ...] = get_args(Model)

Children = Literal["forbid", "readonly"]
"""Whether a workload may start child processes, which the recorder cannot see into."""
CHILDREN: tuple[Children, ...] = get_args(Children)

MOST_LOSSES = 4096
"""How many ways to lose part of one file, or of the names, are tried, unless a profile allows more."""


class NotMeasured(WfstateError, AssertionError):
    """The lab could not see enough for a verdict: neither a pass nor a violation."""


class CheckFails(WfstateError, AssertionError):
    """The check fails even on the disk of a run that nothing interrupted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """How much an exploration may do."""

    states: float
    seconds: float
    losses: float = MOST_LOSSES
    """How many ways to lose part of one file, or of the names, are tried at one point of the run."""
    samples: int = 4
    """Disks that are checked once more, in a clean process."""

    def share(self, parts: int) -> Bounds:
        """Return one of `parts` equal parts."""
        return dataclasses.replace(self, states=self.states / parts, seconds=self.seconds / parts)

    def without(self, states: float, seconds: float) -> Bounds:
        """Return what is left once this much is used."""
        return dataclasses.replace(self, states=max(0, self.states - states), seconds=max(0, self.seconds - seconds))


PROFILES = {
    "quick": Bounds(500, 2, samples=2),
    "default": Bounds(20_000, 20),
    "thorough": Bounds(float("inf"), float("inf"), float("inf"), samples=16),
}
