"""Crash clauses: for each method that changes something, what a kill, a power cut or an I/O error may leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.suites.clauses import Fault, Level, Test, clause
from pytest_wfstate.suites.context import ClauseContext
from pytest_wfstate.suites.faults.crash_run import CrashRun, Scenario, scenarios_of
from pytest_wfstate.suites.faults.rehearsal import inject
from pytest_wfstate.suites.faults.server import ServerLink, cut_each_message

if TYPE_CHECKING:
    from pytest_wfstate.suites.base import Suite

__tracebackhide__ = True


def clauses_for(suite: type) -> dict[str, Test]:
    """Make the clauses of a suite's scenarios."""
    scenarios = vars(suite).get("scenarios", {})
    changes = {f"test_{fault}_{name}": make(name) for name in scenarios for fault, make in _CRASHES.items()}
    return changes | {"test_errors_reads": _fail_reads} if scenarios else {}


def _crash_clause(level: Level, fault: Fault, promise: str) -> Callable[[str], Test]:
    def make(name: str) -> Test:
        @clause(level, promise.format(name.replace("_", " ")), fault)
        def test(self: Suite) -> None:
            if self.medium == "server" and fault == "kill":
                cut_each_message(self.context, name, ServerLink.kill)
            else:
                _crash(self.context, name, fault)

        return test

    return make


_SURVIVES = "every acknowledged call survives and {0} is all or nothing."
_CRASHES = {
    "kill": _crash_clause("safe", "kill", f"If the process is killed during {{0}}, {_SURVIVES}"),
    "power": _crash_clause("hardened", "power", f"If the power fails during {{0}}, {_SURVIVES}"),
    "errors": _crash_clause(
        "hardened", "errors", "An I/O error during {0} is raised, {0} is all or nothing, and the store keeps working."
    ),
}


@clause("hardened", "An I/O error during a read is raised: it never looks like a missing record.", "errors")
def _fail_reads(self: Suite) -> None:
    context = self.context
    context.need_files("its reads cannot be made to fail")
    write = self.contract.write
    before = [write("a", 1), write("b", 2)]
    # Each by itself: what one has read, a handle may remember for the next.
    scenarios = [Scenario([read], before=before) for read in context.reads("a")]
    lab = context.crash_lab
    lab.divide(len(scenarios))
    inject(
        context,
        [CrashRun(context, scenario, lab.ack) for scenario in scenarios],
        lambda run: lab.errors(run.retrying_workload, run.check, setup=run.setup, errors=("EIO",)),
    )


def _crash(context: ClauseContext, name: str, fault: Fault) -> None:
    """Inject one kind of fault wherever it can strike a method's scenarios.

    Raises:
        CrashBug, ErrorBug: the store does not survive.
    """
    context.need_files("its writes cannot be seen")
    lab, suite = context.crash_lab, context.suite
    scenarios = scenarios_of(context, name, fault)
    lab.divide(len(scenarios) * (2 if fault == "errors" else 1))
    depth = 1 if context.profile == "quick" and not suite.crashes_recovery else 2
    model: Model | None = "kill" if fault == "kill" else None

    def strike(run: CrashRun) -> None:
        if fault == "errors":
            lab.errors(run.workload, run.check, setup=run.setup)
            lab.errors(run.retrying_workload, run.check, setup=run.setup)
        else:
            lab.explore(run.workload, run.check, setup=run.setup, model=model, depth=depth)

    inject(context, [CrashRun(context, scenario, lab.ack) for scenario in scenarios], strike)
