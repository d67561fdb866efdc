"""By default, the test command runs few of the slow clauses, as many known-bad stores break the same ones."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.suites import SUITES
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each slow clause on one store, and each store on one slow clause and one that it keeps.

    With --wfstate-profile on the command line, run all of them.
    """
    if config.getoption("--wfstate-profile") is not None:
        return
    left_out = (_slow() - _chosen()) | _kept()
    deselected = {item for item in items if "unit/zoo/" in item.nodeid and _pair(item) in left_out}
    if deselected:
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]


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


def _pair(item: pytest.Item) -> tuple[str, str]:
    suite = getattr(item, "cls", None)
    return str(suite.__doc__) if suite else "", str(dict(item.user_properties).get("wfstate_clause"))
