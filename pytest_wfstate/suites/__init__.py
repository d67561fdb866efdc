"""Conformance suites: subclass one, write `open`, and learn which promises a store breaks."""

from pytest_wfstate.contracts.base import Call, Contract, GeneratedValues, Ids, Operation, PossibleEffect, ResultOf
from pytest_wfstate.engine.script import RESTART, Tick, ViaHandle, second_handle
from pytest_wfstate.oracle.values import exactly
from pytest_wfstate.specs.random_values import any_json, any_record, any_text, any_value
from pytest_wfstate.suites.base import Suite
from pytest_wfstate.suites.clauses import clause, script, timed
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.effects import EffectSuite
from pytest_wfstate.suites.faults import RaceRole, Scenario, race_roles_of, sized
from pytest_wfstate.suites.faults.corruption import corrupted, must_raise
from pytest_wfstate.suites.history import HistorySuite
from pytest_wfstate.suites.lock import LockSuite
from pytest_wfstate.suites.paused import PausedSuite
from pytest_wfstate.suites.queue import QueueSuite
from pytest_wfstate.suites.resume import ResumeSuite
from pytest_wfstate.suites.runs import RunSuite
from pytest_wfstate.suites.snapshots import SnapshotSuite

__all__ = [
    "RESTART",
    "SUITES",
    "Call",
    "ClauseContext",
    "Contract",
    "EffectSuite",
    "GeneratedValues",
    "HistorySuite",
    "Ids",
    "LockSuite",
    "Operation",
    "PausedSuite",
    "PossibleEffect",
    "QueueSuite",
    "RaceRole",
    "ResultOf",
    "ResumeSuite",
    "RunSuite",
    "Scenario",
    "SnapshotSuite",
    "Suite",
    "Tick",
    "ViaHandle",
    "any_json",
    "any_record",
    "any_text",
    "any_value",
    "clause",
    "corrupted",
    "exactly",
    "must_raise",
    "race_roles_of",
    "script",
    "second_handle",
    "sized",
    "timed",
]

SUITES: dict[str, type[Suite]] = {
    suite.contract.name: suite
    for suite in (EffectSuite, PausedSuite, ResumeSuite, SnapshotSuite, RunSuite, HistorySuite, QueueSuite, LockSuite)
}
"""The suite of each contract."""
