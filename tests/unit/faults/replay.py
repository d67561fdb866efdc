"""Replaying a violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate import Crash, ErrorBug
from pytest_wfstate.faults.replay_id import ReplayId
from tests.unit.faults.conftest import Lab


def replayed_report(lab: Lab, bug: ErrorBug, explore: Callable[[Crash], Any]) -> str:
    """Replay an I/O error, and return its report with the counts of the first."""
    with pytest.raises(ErrorBug) as again:
        explore(lab(replay=ReplayId.read(bug.replay_id)))
    return "\n".join([*str(again.value).splitlines()[:-1], str(bug).splitlines()[-1]])
