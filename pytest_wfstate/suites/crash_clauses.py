"""Crash clauses: for each method that changes something, what a kill, a power cut or an I/O error may leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_wfstate.errors import Violation
from pytest_wfstate.faults.crash import Crash, NotMeasured
from pytest_wfstate.faults.violation import said
from pytest_wfstate.suites.clauses import Fault, Level, clause
from pytest_wfstate.suites.crashes import Trial, crashed
from pytest_wfstate.suites.harness import Harness

__tracebackhide__ = True


def crash_clauses(suite: type) -> dict[str, Callable[[Harness], None]]:
    """Make the clauses of a suite's scenarios."""
    return {
        f"test_{fault}_{name}": make(name)
        for name in vars(suite).get("scenarios", {})
        for fault, make in _CRASHES.items()
    }


def _crash(level: Level, fault: Fault, promise: str) -> Callable[[str], Callable[[Harness], None]]:
    def make(name: str) -> Callable[[Harness], None]:
        @clause(level, promise.format(name.replace("_", " ")), fault)
        def test(self: Harness) -> None:
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


def _crashed(suite: Harness, name: str, fault: Fault) -> None:
    suite._need_files("what its process writes cannot be seen")
    lab: Crash = suite._request.getfixturevalue("_wfstate_crash")
    unmeasured: list[Exception] = []
    not_offered: list[str] = []
    for scenario in [one for one in suite.scenarios[name] if fault in one.faults]:
        trial = Trial(
            suite._handles,
            suite.contract,
            suite.normalise,
            scenario,
            suite.afterwards,
            lab.ack,
        )
        try:
            trial.rehearse(suite._home)
        except pytest.skip.Exception as skipped:
            not_offered.append(str(skipped))
        except Exception as error:
            if suite._fails_to_open:
                raise
            unmeasured.append(error)
        else:
            crashed(trial, lab, fault)
    if unmeasured:
        raise NotMeasured(
            f"{suite._title}\n\nNOT_MEASURED: without any fault the store already does what its contract does not "
            f"allow. Mend that first:\n{told(unmeasured[0])}"
        )
    if len(not_offered) == len(suite.scenarios[name]):
        pytest.skip(not_offered[0])
    suite._tell("left_out", dict.fromkeys(not_offered))


def told(error: Exception) -> str:
    """Give what a store did wrong without any fault."""
    return str(error) if isinstance(error, Violation) else "\n".join(said(error))
