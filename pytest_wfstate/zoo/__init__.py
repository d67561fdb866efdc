"""The zoo: known-bad stores, each with its story and the clauses that it breaks.

It proves that the suites catch real bugs. Every known-bad store is a few lines on top of a correct one.
"""

from pytest_wfstate.zoo import claims, effects, forks, paused, races, recoveries, resume, runs, shared_bugs, snapshots
from pytest_wfstate.zoo.base import KNOWN_BAD_STORES, KnownBadStore

__all__ = [
    "KNOWN_BAD_STORES",
    "KnownBadStore",
    "claims",
    "effects",
    "forks",
    "paused",
    "races",
    "recoveries",
    "resume",
    "runs",
    "shared_bugs",
    "snapshots",
]
