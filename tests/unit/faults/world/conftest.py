from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate import Crash
from tests.unit.faults.world.bank import Bank


@pytest.fixture
def bank(crash: Crash) -> Any:
    return crash.world(Bank())
