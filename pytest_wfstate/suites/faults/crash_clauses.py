"""Crash clauses: for each method that changes something, what a kill, a power cut or an I/O error may leave."""

from __future__ import annotations

from collections.abc import Callable

from pytest_wfstate.labs.crash import Crash
from pytest_wfstate.suites.clauses import Fault, Level, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash import crashed, explorations
from pytest_wfstate.suites.faults.rehearsal import rehearsed
from pytest_wfstate.suites.faults.server import ServerLink, cut_each_message

__tracebackhide__ = True


def crash_clauses(suite: type) -> dict[str, Callable[[ClauseContext], None]]:
    """Make the clauses of a suite's scenarios."""
    return {
        f"test_{fault}_{name}": make(name)
        for name in vars(suite).get("scenarios", {})
        for fault, make in _CRASHES.items()
    }


def _crash(level: Level, fault: Fault, promise: str) -> Callable[[str], Callable[[ClauseContext], None]]:
    def make(name: str) -> Callable[[ClauseContext], None]:
        @clause(level, promise.format(name.replace("_", " ")), fault)
        def test(self: ClauseContext) -> None:
            _crashed(self, name, fault)

        return test

    return make


_CRASHES = {
    "kill": _crash(
        "safe",
        "kill",
        "A process that is killed in {0} leaves all that was acknowledged, and {0} in full or not at all.",
    ),
    "power": _crash(
        "hardened", "power", "A power cut in {0} leaves all that was acknowledged, and {0} in full or not at all."
    ),
    "errors": _crash(
        "hardened", "errors", "An I/O error in {0} is raised, and leaves {0} in full or not at all; the store goes on."
    ),
}


def _crashed(suite: ClauseContext, name: str, fault: Fault) -> None:
    if suite.medium == "server" and fault == "kill":
        cut_each_message(suite, name, ServerLink.kill)
        return
    suite._need_files("what its process writes cannot be seen")
    lab: Crash = suite._request.getfixturevalue("_wfstate_crash")
    scenarios = [one for one in suite.scenarios[name] if fault in one.faults]
    lab.divide(len(scenarios) * explorations(fault))
    for trial in rehearsed(suite, [suite._trial(one, lab.ack) for one in scenarios]):
        crashed(trial, lab, fault)
