"""Race roles: what two workers save differs, in size too."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate.suites.effects import EffectSuite
from pytest_wfstate.suites.faults import RaceRole
from pytest_wfstate.suites.history import HistorySuite
from pytest_wfstate.suites.lock import LockSuite
from pytest_wfstate.suites.paused import PausedSuite
from pytest_wfstate.suites.queue import QueueSuite
from pytest_wfstate.suites.resume import ResumeSuite
from pytest_wfstate.suites.runs import RunSuite
from pytest_wfstate.suites.snapshots import SnapshotSuite

SUITES: tuple[Any, ...] = (
    EffectSuite,
    PausedSuite,
    ResumeSuite,
    RunSuite,
    SnapshotSuite,
    HistorySuite,
    QueueSuite,
    LockSuite,
)
ROLES = [
    pytest.param(role, id=f"{suite.__name__}-{name}")
    for suite in SUITES
    for name, role in suite.race_roles.items()
    if role.calls("a", 1) != role.calls("a", 2)
]


@pytest.mark.parametrize("role", ROLES)
def test_two_workers_save_records_of_different_sizes(role: RaceRole) -> None:
    """Otherwise a writer that overwrites a file in place would pass: the last one replaces everything."""
    sizes = [len(repr([call.args for call in role.calls("a", number)])) for number in (1, 2)]
    assert sizes[0] != sizes[1]
