"""The bounds and profiles of an exploration, the names of its choices, and the two errors of one without a verdict.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

from pytest_wfstate.errors import WfstateError

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
    """How much an exploration may try. These are counts, so that a verdict does not depend on the machine's load."""

    states: float = 5_000
    """Disks that are checked."""
    looks: float = 50_000
    """Combinations of losses that are derived; several may leave the same disk."""
    volume: float = 2**34
    """Bytes on the disks that are derived, which large files reach first."""
    runs: float = 1_000
    """Runs of a workload in which an operation fails."""
    schedules: float = 5_000
    """Schedules that are run."""
    losses: float = MOST_LOSSES
    """How many ways to lose part of one file, or of the names, are tried at one point of the run."""
    clause_parts: int = 1
    """A clause of a suite, one of dozens, gets one of this many parts."""
    orders: int = 2
    """In how many more orders a run with several threads or tasks is recorded."""
    samples: int = 4
    """Disks that are checked once more, in a clean process."""
    advised: int = 500
    """Disks that are checked after a violation, with and without an fsync that may be missing, to advise on it."""
    seconds: float = 1_800
    """A safety net, which a machine ten times slower does not reach. Then the result is INCOMPLETE, not a pass."""

    def share(self, parts: int) -> Bounds:
        """Return one of `parts` equal parts. The safety net is for each part."""
        return dataclasses.replace(self, **{name: getattr(self, name) / parts for name in SHARED})

    def without(self, used: Mapping[str, int]) -> Bounds:
        """Return what is left once this much is used, by name."""
        return dataclasses.replace(self, **{name: max(0, getattr(self, name) - used.get(name, 0)) for name in SHARED})


SHARED = ("states", "looks", "volume", "runs", "schedules")
"""The bounds that the explorations of a test can share."""

PROFILES = {
    "quick": Bounds(
        states=500, looks=5_000, volume=2**31, runs=100, schedules=500, samples=2, advised=100, seconds=600
    ),
    "default": Bounds(clause_parts=10),
    "thorough": Bounds(
        states=1_000_000,
        looks=10_000_000,
        volume=2**40,
        runs=100_000,
        schedules=1_000_000,
        losses=1_000_000,
        orders=16,
        samples=16,
        advised=5_000,
        seconds=86_400,
    ),
}
