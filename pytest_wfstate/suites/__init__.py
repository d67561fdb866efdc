"""Conformance suites: subclass one, write `open`, and learn which promises a store breaks."""

from pytest_wfstate.contracts.base import Call, Contract, Operation, ResultOf
from pytest_wfstate.engine.script import RESTART, second_handle
from pytest_wfstate.specs.random_values import any_json, any_record, any_text, any_value
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import script
from pytest_wfstate.suites.effects import EffectSuite
from pytest_wfstate.suites.faults import RaceRole, Scenario, race_roles_of
from pytest_wfstate.suites.paused import PausedSuite
from pytest_wfstate.suites.resume import ResumeSuite
from pytest_wfstate.suites.runs import RunSuite
from pytest_wfstate.suites.snapshots import SnapshotSuite

__all__ = [
    "RESTART",
    "SUITES",
    "Call",
    "Contract",
    "EffectSuite",
    "Operation",
    "PausedSuite",
    "RaceRole",
    "ResultOf",
    "ResumeSuite",
    "RunSuite",
    "Scenario",
    "SnapshotSuite",
    "Suite",
    "any_json",
    "any_record",
    "any_text",
    "any_value",
    "race_roles_of",
    "script",
    "second_handle",
]

SUITES: dict[str, type[Suite]] = {
    suite.contract.name: suite for suite in (EffectSuite, PausedSuite, ResumeSuite, SnapshotSuite, RunSuite)
}
"""The suite of each contract."""
