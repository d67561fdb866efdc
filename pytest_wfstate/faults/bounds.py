"""What bounds an exploration, the names of the disk models, and the two errors of one that gives no verdict.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import pytest

from pytest_wfstate.errors import WfstateError

FAILURES = (Exception, SystemExit, pytest.fail.Exception)
"""What a check may raise to say that it fails."""

Model = Literal["kill", "ext4", "xfs", "posix"]
"""What a disk keeps in a crash."""
MODELS: tuple[Model, ...] = get_args(Model)

MOST_LOSSES = 4096
"""How many ways to lose part of one file, or of the names, are tried unless a profile allows more."""


class NotMeasured(WfstateError, AssertionError):
    """The lab could not see enough to say anything: neither a pass nor a violation."""

    __module__ = "pytest_wfstate"


class CheckFails(WfstateError, AssertionError):
    """The check does not even accept the disk of a run that nothing interrupted."""

    __module__ = "pytest_wfstate"


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """How much an exploration may do."""

    states: float
    seconds: float
    losses: float = MOST_LOSSES
    """Ways to lose of one file, or of the names, that are looked at, at one point of the run."""
    samples: int = 4
    """Disks that are checked once more, in a fresh process."""

    def share(self, parts: int) -> Bounds:
        """Give one of so many equal parts."""
        return dataclasses.replace(self, states=self.states / parts, seconds=self.seconds / parts)

    def without(self, states: float, seconds: float) -> Bounds:
        """Give what is left when so much is done."""
        return dataclasses.replace(self, states=max(0, self.states - states), seconds=max(0, self.seconds - seconds))


PROFILES = {
    "quick": Bounds(500, 2, samples=2),
    "default": Bounds(20_000, 20),
    "thorough": Bounds(float("inf"), float("inf"), float("inf"), samples=16),
}
