"""By default, the test command runs few of the slow clauses, as many known-bad stores break the same ones."""

from __future__ import annotations

import functools
from collections.abc import Generator

import pytest

from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.suites import SUITES
from pytest_wfstate.suites.clauses import clause_of
from pytest_wfstate.zoo import KNOWN_BAD_STORES

_SLOW = {"kill", "power", "errors", "race", "server", "cancel"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a clause that a bound kept from catching its store: users may know of such, the zoo must not."""
    report = yield
    if "unit/zoo/" in item.nodeid and call.when == "call" and ("wfstate_result", "not seen") in report.user_properties:
        report.outcome = "failed"
        report.longrepr = f"The clause passed on this known-bad store: {report.wasxfail}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Run each slow clause on one store, and each store on one slow clause and one that it keeps.

    With --wfstate-profile on the command line, run all of them. What does not run is not collected either: its items
    would make every process that tests fork larger.
    """
    if not isinstance(collector, pytest.Class) or collector.config.getoption("--wfstate-profile") is not None:
        return None
    clause = clause_of(collector.obj, obj, name)
    return [] if clause is not None and (collector.obj.__doc__, clause.id) in _left_out() else None


@functools.cache
def _left_out() -> set[tuple[str, str]]:
    return (_slow() - _chosen()) | _kept()


def _slow() -> set[tuple[str, str]]:
    """Return the stores with the slow clauses that each breaks."""
    slow = {clause.id for clause in all_clauses() if clause.fault in _SLOW}
    return {(store.story, clause) for store in KNOWN_BAD_STORES for clause in store.breaks if clause in slow}


def _chosen() -> set[tuple[str, str]]:
    """Choose for each clause the store that breaks the fewest others, and for each store its first clause."""
    by_breaks = sorted(KNOWN_BAD_STORES, key=lambda store: len(store.breaks), reverse=True)
    of_clause = {clause: store.story for store in by_breaks for clause in store.breaks}
    return {(story, clause) for clause, story in of_clause.items()} | {
        (store.story, store.breaks[0]) for store in KNOWN_BAD_STORES
    }


def _kept() -> set[tuple[str, str]]:
    """Return the stores with the core clauses that each keeps, except the first: it shows that the store works."""
    core = {contract: [clause.id for clause in all_clauses(contract) if clause.level == "core"] for contract in SUITES}
    return {
        (store.story, clause)
        for store in KNOWN_BAD_STORES
        for clause in [kept for kept in core[store.contract] if kept not in store.breaks][1:]
    }
