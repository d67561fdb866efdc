"""What the plugin prints at the end of a pytest run: one summary line for explorations, and one for each suite.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

_MOST_LINES = 8
"""More suites than this share one line."""

_COUNTED = {"states": ("workload", "disk"), "schedules": ("race", "schedule"), "calls": ("storm", "call")}
"""For each counter of an exploration: what was explored, and what was counted in it."""

Properties = list[tuple[str, Any]]


class ResultCollector:
    """Aggregate exploration and suite results, from xdist workers too, into one summary line each.

    A run that was asked to replay a violation and did not is not a success.
    """

    def __init__(self, replay: str | None) -> None:
        self._replay = replay
        self._properties: Properties = []
        self._clauses: list[tuple[str, Properties]] = []
        self.not_asked: Counter[str] = Counter()
        """For each suite, how many clauses are above its level."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the properties of a test."""
        if report.when == "teardown":
            self._properties += [pair for pair in report.user_properties if pair[0].startswith("wfstate_")]
            if any(name in ("wfstate_clause", "wfstate_forgets") for name, _ in report.user_properties):
                self._clauses.append((suite_of(report.nodeid), report.user_properties))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the counts of an xdist worker. Every worker deselects the same clauses."""
        self.not_asked |= Counter(getattr(node, "workeroutput", {}).get("wfstate_not_asked", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send counts from an xdist worker, and fail a run that replayed nothing."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["wfstate_not_asked"] = dict(self.not_asked)
        if self._nothing_replayed(session.config) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Write the summary lines."""
        if any(name == "wfstate_verdict" for name, _ in self._properties):
            terminalreporter.write_line(f"wfstate: {summary(self._properties)}")
        for line in self._suites():
            terminalreporter.write_line(f"wfstate: {line}")
        if self._nothing_replayed(config):
            terminalreporter.write_line(
                f"wfstate: nothing was replayed. No test that ran reached the exploration of "
                f"--wfstate-replay={self._replay}. Run the command at the end of the violation's report: it names the "
                "test.",
                red=True,
            )

    def _suites(self) -> list[str]:
        if not self._clauses and not self.not_asked:
            return []
        from pytest_wfstate.report.scorecard import Item, Row, rows_of

        items = [Item.of(suite, "", "", "", properties) for suite, properties in self._clauses]
        rows = rows_of(items, self.not_asked)
        if len(rows) > _MOST_LINES:
            rows = [Row(f"{len(rows)} suites", items, self.not_asked.total())]
        return [row.in_a_line() for row in rows]

    def _nothing_replayed(self, config: pytest.Config) -> bool:
        asked = self._replay is not None and not config.option.collectonly
        return asked and ("wfstate_replayed", True) not in self._properties


def suite_of(nodeid: str) -> str:
    """Return the name of the suite that a test belongs to."""
    return nodeid.split("::")[-2]


def summary(properties: Properties) -> str:
    """Return one line about all explorations of a session."""
    parts = []
    for name, (whole, part) in _COUNTED.items():
        numbers = [int(value) for key, value in properties if key == f"wfstate_{name}"]
        if numbers:
            parts += [_count(len(numbers), whole), _count(sum(numbers), part)]
    verdicts = [value for key, value in properties if key == "wfstate_verdict"]
    parts += [_count(verdicts.count("VIOLATED"), "violation"), f"{verdicts.count('NOT_MEASURED')} not measured"]
    if bounded := sum(key == "wfstate_bounded" for key, _ in properties):
        parts.append(f"{bounded:,} cut off by a bound")
    seconds = sum(float(value) for key, value in properties if key == "wfstate_seconds")
    states = sum(int(value) for key, value in properties if key == "wfstate_states")
    if seconds and states:
        parts.append(f"{states / seconds:,.0f} disks/s")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
