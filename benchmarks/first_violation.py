"""How many disks are checked before a bug shows: the known-bad stores that break a kill or power clause.

Disks are tried one of each kind first, so a bound should hide nothing that a store author can get wrong. To compare,
the same is done in plain order, point after point. Counts do not depend on the machine.
"""

from __future__ import annotations

import os
import sys
import unittest.mock
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.cli import collected
from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.cli.collected import SuiteSource
from pytest_wfstate.faults.disk import states
from pytest_wfstate.faults.disk.home import memory_home
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.order import Candidate
from pytest_wfstate.faults.trace.ops import Trace
from pytest_wfstate.suites import SUITES
from pytest_wfstate.zoo import KNOWN_BAD_STORES
from pytest_wfstate.zoo.suites import suite_of

MOST = 50  # disks before the first violation
SHOWN = 12


class FirstViolations:
    """A pytest plugin that collects how many disks each violated exploration checked."""

    def __init__(self) -> None:
        self.disks: dict[str, int] = {}
        self.others: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at the properties that explorations leave: each begins with its verdict."""
        if report.when != "call":
            return
        verdict: Any = None
        for name, value in report.user_properties:
            verdict = value if name == "wfstate_verdict" else verdict
            if name == "wfstate_states" and verdict == "VIOLATED":
                self.disks[report.nodeid] = int(str(value))
        if report.nodeid not in self.disks:
            self.others[report.nodeid] = report.outcome


def point_by_point(_: Trace, points: Sequence[CrashPoint]) -> Iterator[Candidate]:
    """Yield every loss at the first point, then at the second, and so on."""
    return ((point, loss) for point in points for _, loss in point.losses())


def summary(order: str, found: FirstViolations) -> str:
    """Describe how many disks the bugs took."""
    counts = sorted(found.disks.values())
    early = sum(disks <= MOST for disks in counts)
    return (
        f"{order}: {early} of {len(found.disks) + len(found.others)} bugs found within {MOST} disks; "
        f"median {counts[len(counts) // 2]}, most {counts[-1]}"
    )


def explore(folder: Path) -> FirstViolations:
    """Run every kill and power clause that a known-bad store on disk breaks."""
    wanted = {clause.id: clause.test for clause in all_clauses() if clause.fault in ("kill", "power")}
    stores = [store for store in KNOWN_BAD_STORES if not store.server and wanted.keys() & set(store.breaks)]
    names = {store.name: suite_of(store, SUITES).__name__ for store in stores}
    file = collected.write(folder, [SuiteSource(names[store.name], "zoo", store.name) for store in stores])
    tests = [
        f"{file}::{names[store.name]}::{wanted[clause]}"
        for store in stores
        for clause in store.breaks
        if clause in wanted
    ]
    plugin = FirstViolations()
    options = ["-q", f"--config-file={os.devnull}", "--noconftest", "-p", "no:cacheprovider", "-p", collected.__name__]
    pytest.main(
        [*options, "--wfstate-profile=quick", "--tb=no", "--no-header", "--disable-warnings", *tests], plugins=[plugin]
    )
    return plugin


def main() -> int:
    """Print the slowest, and fail if a bug took more disks than wanted, or was not found by a crash."""
    with memory_home() as home, unittest.mock.patch.object(states, "in_order", point_by_point):
        plain = explore(home.path)
    with memory_home() as home:
        found = explore(home.path)
    by_disks = sorted(found.disks.items(), key=lambda pair: -pair[1])
    for test, disks in by_disks[:SHOWN]:
        print(f"{disks:6,}  {test.split('::', 1)[1]}")
    print(summary("in plain order", plain), summary("one of each kind first", found), sep="\n")
    if found.others:
        print(
            f"{len(found.others)} clauses failed before a crash was explored: {', '.join(sorted(found.others))[:500]}"
        )
    return int(by_disks[0][1] > MOST)


if __name__ == "__main__":
    sys.exit(main())
