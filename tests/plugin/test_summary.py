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
from tests.plugin.conftest import OTHERS, Run

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
        options = [option for option in OTHERS if option not in ("-p", "no:xdist")]
        result = pytester.runpytest_subprocess("-n", "2", *(f"-p{option}" for option in options))
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(
            [
                "wfstate: backends memory, file; profile default; model posix",
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
        command = [sys.executable, "-m", "pytest", *OTHERS, *options]
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
        written = self.on_a_terminal(pytester, "-v")
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
