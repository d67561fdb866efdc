"""The zoo: known-bad stores, each with its story and the clauses that it breaks.

It proves that the suites catch real bugs. Every known-bad store is a few lines on top of a correct one.
"""

from pytest_wfstate.zoo import (
    effects,
    history,
    lock,
    paused,
    paused_claims,
    paused_fencing,
    paused_recoveries,
    queue,
    resume,
    runs,
    shared_bugs,
    snapshot_forks,
    snapshots,
)
from pytest_wfstate.zoo.base import KNOWN_BAD_STORES, KnownBadStore, known_bad

__all__ = [
    "KNOWN_BAD_STORES",
    "KnownBadStore",
    "effects",
    "history",
    "known_bad",
    "lock",
    "paused",
    "paused_claims",
    "paused_fencing",
    "paused_recoveries",
    "queue",
    "resume",
    "runs",
    "shared_bugs",
    "snapshot_forks",
    "snapshots",
]
