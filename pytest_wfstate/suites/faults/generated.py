"""Generated clauses: those that follow from what a suite says of its contract, its scenarios for instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_wfstate.suites.faults.corruption import heal_clauses
from pytest_wfstate.suites.faults.crash_clauses import crash_clauses
from pytest_wfstate.suites.faults.race_clauses import race_clauses
from pytest_wfstate.suites.faults.server_clauses import server_clauses

Test = Callable[[Any], None]
"""A test method that is a clause."""

_KINDS: tuple[Callable[[type], Mapping[str, Test]], ...] = (heal_clauses, crash_clauses, race_clauses, server_clauses)
"""What makes clauses of a suite's own attributes, not of inherited ones: tests by their names."""


def generated(suite: type) -> dict[str, Test]:
    """Make the clauses that follow from what a suite says, by the names of their tests."""
    return {name: test for make in _KINDS for name, test in make(suite).items()}
