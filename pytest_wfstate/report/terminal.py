"""What the plugin prints at the end of a pytest run: one summary line for explorations, and one for each suite.

The plugin imports this when pytest starts, so it imports nothing heavy.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_wfstate.labs.options import NOT_OPENED
from pytest_wfstate.report.failures import BRIEF, ShownFailures, group_lines

if TYPE_CHECKING:
    from pytest_wfstate.report.scorecard import Item, Row

_MOST_LINES = 8
"""More suites, or tests that a bound cut off, than this share one line."""

_COUNTED = {"states": ("workload", "disk"), "schedules": ("race", "schedule"), "calls": ("storm", "call")}
"""For each counter of an exploration: what was explored, and what was counted in it."""

Properties = list[tuple[str, Any]]


class ResultCollector:
    """Aggregate exploration and suite results, from xdist workers too, into one summary line each.

    A run that was asked to replay a violation and did not is not a success.
    """

    def __init__(self, replay: str | None) -> None:
        self._replay = replay
        self._shown = ShownFailures()
        self._is_verbose = False
        self._tests: dict[str, Properties] = {}
        """What each test has reported."""
        self._outcomes: dict[str, str] = {}
        self.not_asked: Counter[str] = Counter()
        """For each suite, how many clauses are above its level."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Learn whether every failure is to be shown in full."""
        self._is_verbose = config.option.verbose > 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the properties of a test, and how it ended. If it is run again, its last run counts."""
        test, properties = report.nodeid, [pair for pair in report.user_properties if pair[0].startswith("wfstate_")]
        if not properties:
            return
        before = "passed" if report.when == "setup" else self._outcomes.get(test, "passed")
        self._outcomes[test] = report.outcome if before == "passed" else before
        if report.when == "teardown":
            self._tests[test] = properties

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the counts of an xdist worker. Every worker deselects the same clauses."""
        self.not_asked |= Counter(getattr(node, "workeroutput", {}).get("wfstate_not_asked", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send counts from an xdist worker, and fail a run that replayed nothing."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["wfstate_not_asked"] = dict(self.not_asked)
        has_missed = self._nothing_replayed(session.config) or self._unreported(session.config)
        if has_missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Write the summary lines."""
        stats = terminalreporter.stats
        in_a_line = [*stats.pop(NOT_OPENED, []), *stats.pop(BRIEF, [])]  # the full reports are written already
        if in_a_line:
            stats.setdefault("failed", []).extend(in_a_line)
        for line in [*self._explorations(), *self._cut_off(), *self._suites(), *self._groups()]:
            terminalreporter.write_line(f"wfstate: {line}")
        for suite, deviation in self._unreported(config):
            terminalreporter.write_line(
                f"wfstate: {suite}: {deviation}, which the contract does not allow, but no clause reports it. Crashes "
                "and races were judged against the store's own uninterrupted runs, so this run is not a success.",
                red=True,
            )
        if self._nothing_replayed(config):
            terminalreporter.write_line(
                f"wfstate: nothing was replayed. No test that ran reached the exploration of "
                f"--wfstate-replay={self._replay}. Run the command at the end of the violation's report: it names the "
                "test.",
                red=True,
            )

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Keep tests apart that fail for a reason another one shows in full."""
        properties = getattr(report, "user_properties", ())  # which a report of the collection does not have
        if not report.failed or not properties:
            return None
        if (NOT_OPENED, True) in properties:
            return (NOT_OPENED, "F", "FAILED")
        is_brief = not self._is_verbose and self._shown.is_brief(report)
        return (BRIEF, "F", "FAILED") if is_brief else None

    def _explorations(self) -> list[str]:
        all_properties = [pair for properties in self._tests.values() for pair in properties]
        if not any(name == "wfstate_verdict" for name, _ in all_properties):
            return []
        # The verdict of a clause is that of the suite: it may fail before, or without, an exploration.
        verdicts = [
            {"failed": "VIOLATED", "not measured": "NOT_MEASURED"}.get(item.result, item.result)
            for item in self._items()
        ]
        for properties in self._tests.values():
            if ("wfstate_suite", True) not in properties:
                verdicts += [value for name, value in properties if name == "wfstate_verdict"]
        return [summary(all_properties, verdicts)]

    def _cut_off(self) -> list[str]:
        bounded = {
            test: [str(value) for name, value in properties if name == "wfstate_bounded_to"]
            for test, properties in self._tests.items()
        }
        lines = cut_off({test: covered for test, covered in bounded.items() if covered})
        return [f"cut off by a bound: {line}" for line in lines]

    def _items(self) -> list[Item]:
        tests = {test: pairs for test, pairs in self._tests.items() if ("wfstate_suite", True) in pairs}
        if not tests:
            return []
        from pytest_wfstate.report.scorecard import Item

        return [
            Item.of(suite_of(test), test, self._outcomes[test], "", properties) for test, properties in tests.items()
        ]

    def _rows(self) -> list[Row]:
        items = self._items()
        if not items and not self.not_asked:
            return []
        from pytest_wfstate.report.scorecard import rows_of

        return rows_of(items, self.not_asked)

    def _suites(self) -> list[str]:
        rows = self._rows()
        if len(rows) > _MOST_LINES:
            from pytest_wfstate.report.scorecard import Row

            rows = [Row(f"{len(rows)} suites", self._items(), self.not_asked.total())]
        return [row.in_a_line() for row in rows]

    def _unreported(self, config: pytest.Config) -> list[tuple[str, str]]:
        """Return the suites whose stores deviate although no clause fails, unless only some clauses were run."""
        options = config.option
        is_filtered = options.keyword or options.markexpr or any("::" in arg for arg in config.args)
        pairs = [(row.name, row.unreported()) for row in self._rows()] if not is_filtered and not self._replay else []
        return [pair for pair in pairs if pair[1]]

    def _groups(self) -> list[str]:
        failed = {row.name: [item for item in row.items if item.has_failed] for row in self._rows()}
        lines = [f"{suite}: {line}" for suite, items in failed.items() for line in group_lines(items)]
        hides = lines and not self._is_verbose
        return [*lines, "only the first failure for each reason is shown in full: -v shows all"] if hides else lines

    def _nothing_replayed(self, config: pytest.Config) -> bool:
        asked = self._replay is not None and not config.option.collectonly
        return asked and not any(("wfstate_replayed", True) in properties for properties in self._tests.values())


def suite_of(nodeid: str) -> str:
    """Return the name of the suite that a test belongs to."""
    return nodeid.split("::")[-2]


def summary(properties: Properties, verdicts: Sequence[str]) -> str:
    """Return one line about all explorations of a session."""
    parts = []
    for name, (whole, part) in _COUNTED.items():
        numbers = [int(value) for key, value in properties if key == f"wfstate_{name}"]
        if numbers:
            parts += [counted(len(numbers), whole), counted(sum(numbers), part)]
    parts += [counted(verdicts.count("VIOLATED"), "violation"), f"{verdicts.count('NOT_MEASURED')} not measured"]
    if incomplete := verdicts.count("INCOMPLETE"):
        parts.append(f"{incomplete} incomplete")
    if bounded := sum(key == "wfstate_bounded_to" for key, _ in properties):
        parts.append(f"{bounded:,} cut off by a bound")
    seconds = sum(float(value) for key, value in properties if key == "wfstate_seconds")
    states = sum(int(value) for key, value in properties if key == "wfstate_states")
    if seconds and states:
        parts.append(f"{states / seconds:,.0f} disks/s")
    return ", ".join(parts)


def cut_off(bounded: Mapping[str, Sequence[str]]) -> list[str]:
    """Return how much each test covered whose explorations a bound cut off, a line each, for the first few tests."""
    lines = [
        f"{test}: {first}" + (f"; and {counted(len(rest), 'more exploration')}" if rest else "")
        for test, (first, *rest) in itertools.islice(bounded.items(), _MOST_LINES)
    ]
    hidden = len(bounded) - len(lines)
    return [*lines, counted(hidden, "more test")] if hidden else lines


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
