"""Explorations in the output of a session: the summary, JUnit properties, and the live line."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from tests.plugin.bank import BROKEN, CARELESS, SOUND, UNMEASURED, replay_id
from tests.plugin.conftest import ALONE, WITH_XDIST, Run

pytestmark = pytest.mark.usefixtures("notes")


class TestSummary:
    def test_counts_workloads_states_and_verdicts(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a=SOUND, test_b=BROKEN, test_c=UNMEASURED)
        result = run()
        result.assert_outcomes(passed=1, failed=2)
        (line,) = [line for line in result.outlines if line.startswith("wfstate: 3")]
        assert re.fullmatch(r"wfstate: 3 workloads, \d+ disks, 1 violation, 1 not measured, [\d,]+ disks/s", line)

    def test_a_swallowed_io_error_is_a_violation(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(CARELESS)
        assert "1 workload, 3 disks, 1 violation, 0 not measured" in run().stdout.str()

    def test_is_not_there_without_explorations(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("def test_it(crash): pass")
        result = run()
        assert [line for line in result.outlines if "workload" in line] == []

    def test_header_and_summary_are_the_same_under_xdist(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(test_a=SOUND, test_b=BROKEN, test_c=UNMEASURED)
        result = pytester.runpytest_subprocess("-n2", "--wfstate-profile=quick", *WITH_XDIST)
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(
            [
                "wfstate: backends memory, file; profile quick; model posix",
                "wfstate: 3 workloads, * disks, 1 violation, 1 not measured, * disks/s",
            ]
        )
        assert result.stdout.str().count("wfstate: 3 workloads") == 1

    def test_junit_has_the_results_of_an_exploration(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_b=BROKEN)
        result = run("--junitxml=report.xml")
        report = xml.etree.ElementTree.parse(pytester.path / "report.xml")
        properties = {item.attrib["name"]: item.attrib["value"] for item in report.iter("property")}
        assert properties.pop("wfstate_replay") == replay_id(result)
        assert float(properties.pop("wfstate_seconds")) >= 0
        assert int(properties.pop("wfstate_states")) > 3
        assert int(properties.pop("wfstate_possible")) > int(properties.pop("wfstate_skipped"))
        assert properties == {"wfstate_verdict": "VIOLATED", "wfstate_model": "posix"}


RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    # As pytest-rerunfailures does: a test that fails runs again, and all reports of its last run are logged.
    for left in (1, 0):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            if left and report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
            if report.outcome == "rerun":
                break
        else:
            return True
    return True

def pytest_report_teststatus(report):
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None
"""


def test_a_test_that_runs_again_is_counted_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(RERUNS)
    pytester.makepyfile(test_b=BROKEN, test_store=CLAUSE)
    result = run("--wfstate-corpus=none", "-k", "charge or resume.save.load")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["wfstate: 1 workload, * disks, 2 violations, 0 not measured, *", "wfstate: TestStore: core 0/1; 1 failed"]
    )


CLAUSE = """
from pytest_wfstate import FileResumeStore
from pytest_wfstate.suites import ResumeSuite

class Store(FileResumeStore):
    def load(self, run_id):
        return None

class TestStore(ResumeSuite):
    def open(self, home):
        return Store(home)
"""

MANY = """
def save_many(home):
    for number in range(40):
        (home / f"{number}.txt").write_text("text")
    (home / "last.txt").write_text("text")


def test_it(crash):
    crash.explore(save_many, lambda disk: None)


def test_small(crash):
    crash.explore(lambda home: (home / "note").touch(), lambda disk: None)


def test_twice(crash):
    for _ in range(2):
        crash.explore(save_many, lambda disk: None)
"""
CUT_OFF = r"[\d,]+ of about 10\^\d+ combinations, 2 of 2 call sites crashed"


class TestCutOff:
    """A test that passes although a bound cut it off says how little it covered."""

    def test_the_summary_names_the_test_and_what_it_covered(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a=MANY)
        result = run("--wfstate-profile=quick")
        result.assert_outcomes(passed=3)
        lines = [line for line in result.outlines if line.startswith("wfstate: ") and "cut off" in line]
        assert " 3 cut off by a bound, " in lines[0]
        assert re.fullmatch(rf"wfstate: cut off by a bound: test_a\.py::test_it: {CUT_OFF}", lines[1])
        assert re.fullmatch(
            rf"wfstate: cut off by a bound: test_a\.py::test_twice: {CUT_OFF}; and 1 more exploration", lines[2]
        )
        assert len(lines) == 3

    def test_so_does_the_report_of_the_test(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a=MANY)
        text = run("--wfstate-profile=quick", "-rP", "-k", "test_it").stdout.str()
        assert re.search(
            rf"-+ Captured wfstate call -+\nNo violation was found, but a bound cut the search off: {CUT_OFF}\.\n", text
        )

    def test_many_tests_share_a_line(self, pytester: pytest.Pytester, run: Run) -> None:
        many = MANY.replace(
            "def test_it(crash)", "@pytest.mark.parametrize('number', range(12))\ndef test_it(crash, number)"
        )
        pytester.makepyfile(test_a="import pytest\n" + many)
        lines = [line for line in run("--wfstate-profile=quick", "-k", "test_it").outlines if "cut off" in line]
        assert len(lines) == 1 + 8 + 1
        assert lines[-1] == "wfstate: cut off by a bound: 4 more tests"


LONG = """
import os

import pytest
from pytest_wfstate.faults.crash import budget
from pytest_wfstate.report import progress

TICK = 0.02


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    # A clock that advances whenever it is read, so that the test need not wait.
    time = [0.0]

    def now():
        time[0] += TICK
        return time[0]

    monkeypatch.setattr(budget, "now", now)
    monkeypatch.setattr(progress, "now", now)


@pytest.mark.parametrize("number", [1, 2])
def test_it(crash, number):
    def workload(home):
        for name in "abcdefgh":
            (home / name).write_text("text")

    crash.explore(workload, lambda disk: None)
    print("printed by the test")
"""


class TestLiveLine:
    @staticmethod
    def on_a_terminal(pytester: pytest.Pytester, *options: str) -> str:
        """Return what a run writes to a terminal."""
        ours, theirs = pty.openpty()
        environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
        command = [sys.executable, "-m", "pytest", *ALONE, *options]
        child = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=pytester.path, env=environment)
        os.close(theirs)
        written = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        os.close(ours)
        assert child.wait() == 0
        return re.sub(r"\x1b\[[\d;]*m", "", written.decode())

    def test_is_shown_on_a_terminal_when_it_takes_long_and_leaves_no_trace(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(LONG)
        written = self.on_a_terminal(pytester, "-v", "--wfstate-profile=quick")
        lines = re.findall(r"\rwfstate: ([\d,]+) disks checked, [\d,]+ combinations, \d+ s", written)
        assert len(lines) > 4
        assert lines[:2] == ["64", "128"]
        assert "printed by the test" not in written
        # `\r` goes back to the start of a line: what stays on a terminal is what was written there last.
        shown = [line.rsplit("\r", 1)[-1] for line in written.replace("\r\n", "\n").split("\n")]
        assert not [line for line in shown if "disks checked" in line]
        assert sum("PASSED" in line and "::test_it" in line for line in shown) == 2

    def test_is_not_shown_for_a_short_one(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(LONG.replace("TICK = 0.02", "TICK = 0.0001"))
        assert "disks checked" not in self.on_a_terminal(pytester, "--wfstate-profile=quick")

    def test_is_not_shown_elsewhere(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(LONG)
        result = run()
        result.assert_outcomes(passed=2)
        assert "disks checked" not in result.stdout.str() + result.stderr.str()
