"""The crash lab as its users see it: the fixture, what a violation says, options, summary, and the live line."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.plugin.conftest import OTHERS, Run

GOLDEN = Path(__file__).parent / "golden" / "violation.txt"

NOTES = """
import os

import pytest


def save(home, text):
    (home / "note.tmp").write_text(text)
    os.replace(home / "note.tmp", home / "note")


def fsync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save_well(home, text):
    (home / "note.tmp").write_text(text)
    fsync(home / "note.tmp")
    os.replace(home / "note.tmp", home / "note")
    fsync(home)


def read(home):
    return (home / "note").read_text() if (home / "note").exists() else None
"""

BROKEN = """
from notes import read, save


class Bank:
    def __init__(self):
        self.charged = []

    def charge(self, order, amount):
        self.charged.append(order)


def test_a_charge_is_remembered(crash):
    bank = crash.world(Bank())

    def workload(home):
        bank.charge("order-1", 12)
        save(home, "order-1")
        crash.ack("order-1")

    def check(disk):
        for order in disk.acked:
            assert read(disk.home) == order, "forgotten"

    crash.explore(workload, check)
"""

CARELESS = """
from notes import read, save


def test_it(crash):
    def workload(home):
        try:
            save(home, "text")
        except OSError:
            pass

    def check(disk):
        assert read(disk.home) == "text" or not (disk.home / "note.tmp").exists()

    crash.errors(workload, check, errors=("EIO",))
"""

SOUND = """
from notes import read, save_well


def test_it(crash):
    def workload(home):
        save_well(home, "text")
        crash.ack("text")

    def check(disk):
        assert read(disk.home) == "text" or not disk.acked

    explored = crash.explore(workload, check)
    print(explored.model, explored.tried)
"""

UNMEASURED = """
def test_it(crash):
    crash.explore(lambda home: None, lambda disk: None)
"""


@pytest.fixture(autouse=True)
def notes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(notes=NOTES)


def said(result: pytest.RunResult) -> str:
    """What a failure says, without pytest's margin."""
    lines = [re.sub(r"^E       ", "", line) for line in result.outlines if re.match(r"E(   |$)", line)]
    return "\n".join(line.rstrip() for line in lines)


def replay_id(result: pytest.RunResult) -> str:
    found = re.search(r"--wfstate-replay=(\S+)", result.stdout.str())
    assert found is not None
    return found[1]


class TestViolation:
    def test_says_it_all(self, pytester: pytest.Pytester, run: Run) -> None:
        """The whole text. If it is to change, so is the file beside this one, and the README's."""
        pytester.makepyfile(test_bank=BROKEN)
        text = said(run())
        text = re.sub(r", in [\d.]+ s\.", ", in 0.00 s.", text)
        text = re.sub(r"-[0-9a-f]{8}$", "-00000000", text, flags=re.MULTILINE)
        assert text.splitlines() == GOLDEN.read_text().splitlines()

    def test_points_at_the_line_of_the_test(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        result = run()
        result.stdout.fnmatch_lines([">       crash.explore(workload, check)", "test_bank.py:24: CrashBug"])
        assert "pytest_wfstate/faults" not in result.stdout.str()
        assert "contextlib.py" not in result.stdout.str()

    def test_has_room_in_the_short_summary(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_b=BROKEN.replace("test_a_charge_is_remembered", "test_it"))
        run().stdout.fnmatch_lines(["FAILED test_b.py::test_it - pytest_wfstate.CrashBug: a power cut*"])

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ("crash.explore(lambda home: None, lambda disk: None)", "NotMeasured"),
            ("crash.errors(lambda home: None, lambda disk: None)", "NotMeasured"),
            ("crash.explore(lambda home: save_well(home, 'x'), broken)", "CheckFails"),
            ("crash.errors(careless, lambda disk: read(disk.home).strip())", "ErrorBug"),
            ("crash.kill(lambda home: None, at=crash.before('write'))", "NeverReached"),
            ("asyncio.run(crash.aexplore(lambda home: None, lambda disk: None))", "NotMeasured"),
        ],
    )
    def test_other_failures_point_there_too(self, pytester: pytest.Pytester, run: Run, body: str, error: str) -> None:
        pytester.makepyfile(
            f"""
            import asyncio
            from notes import *

            def careless(home):
                try:
                    save_well(home, "text")
                except OSError:
                    pass

            def broken(disk):
                raise ValueError("broken")

            def test_it(crash):
                {body}
            """
        )
        result = run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f">       {body.replace('[', '[[]')}", f"*: {error}"])
        shown = [line for line in result.outlines if re.match(r"\S+\.py:\d+:", line)]
        if "asyncio" not in body:
            assert all(line.startswith("test_other_failures_point_there_too.py") for line in shown), shown

    @pytest.mark.parametrize("call", ["explore", "errors"])
    def test_a_check_that_always_fails_is_shown_once(self, pytester: pytest.Pytester, run: Run, call: str) -> None:
        pytester.makepyfile(
            test_it=f"""
            from notes import save

            def test_it(crash):
                def check(disk):
                    raise ValueError("I never pass")

                crash.{call}(lambda home: save(home, "text"), check)
            """
        )
        result = run()
        what = "a crash" if call == "explore" else "any error"
        result.stdout.fnmatch_lines(
            [
                '>       raise ValueError("I never pass")',
                "E       ValueError: I never pass",
                f">       crash.{call}(*",
                f"E       pytest_wfstate.CheckFails: your check fails without {what}: ValueError at test_it.py:5. It *",
                "test_it.py:7: CheckFails",
            ]
        )
        assert said(result).count("I never pass") == 1

    def test_an_exception_of_the_workload_is_shown_where_it_was_raised(
        self, pytester: pytest.Pytester, run: Run
    ) -> None:
        pytester.makepyfile(
            """
            def test_it(crash):
                def workload(home):
                    raise LookupError("mine")

                crash.explore(workload, lambda disk: None)
            """
        )
        result = run()
        result.stdout.fnmatch_lines(['>       raise LookupError("mine")', "*.py:3: LookupError"])
        assert "pytest_wfstate/faults" not in result.stdout.str()


class TestFakeDisk:
    """The lab works on real files, so it refuses a disk that is not there."""

    WORDS = "crash and fake_disk cannot be used in the same test: the lab records real files"

    @pytest.mark.parametrize("call", ["explore", "errors", "kill", "points"])
    def test_asked_for_after_crash_is_refused_where_the_lab_is_used(
        self, pytester: pytest.Pytester, run: Run, call: str
    ) -> None:
        arguments = {"kill": ", at=crash.before('write')", "points": ""}.get(call, ", print")
        pytester.makepyfile(f"def test_it(crash, fake_disk):\n    crash.{call}(print{arguments})")
        result = run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f">*crash.{call}(*", f"E*NoRealDisk: {self.WORDS}*", "*.py:2: NoRealDisk"])
        assert "pytest_wfstate/faults" not in result.stdout.str()

    @pytest.mark.parametrize("fixture", ["fake_disk", "fs"])
    def test_asked_for_before_crash_is_refused_at_once(self, pytester: pytest.Pytester, run: Run, fixture: str) -> None:
        pytester.makepyfile(f"def test_it({fixture}, crash): pass")
        result = run()
        result.assert_outcomes(errors=1)
        assert self.WORDS in result.stdout.str()
        assert "plugin.py" not in result.stdout.str()

    def test_of_another_test_does_no_harm(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a="def test_it(fake_disk): pass", test_b=SOUND)
        run().assert_outcomes(passed=2)

    def test_is_refused_before_anything_of_the_lab_is_loaded(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(test_a="def test_it(fake_disk, crash): pass", test_b=SOUND)
        pytester.runpytest_subprocess(*OTHERS).assert_outcomes(passed=1, errors=1)


class TestReplay:
    def test_reproduces_it(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        first = run()
        again = run("test_bank.py::test_a_charge_is_remembered", f"--wfstate-replay={replay_id(first)}")
        again.assert_outcomes(failed=1)
        assert replay_id(again) == replay_id(first)
        assert said(again).split("posix:")[0].split("This is")[0] == said(first).split("posix:")[0]
        assert "This is one disk, replayed." in said(again)

    def test_reproduces_an_io_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=CARELESS)
        first = run()
        assert f'Replay it:  pytest "test_bank.py::test_it" --wfstate-replay={replay_id(first)}' in said(first)
        again = run("test_bank.py::test_it", f"--wfstate-replay={replay_id(first)}")
        again.assert_outcomes(failed=1)
        assert replay_id(again) == replay_id(first)
        assert "This is one disk, replayed." in said(again)

    def test_passes_once_the_check_accepts_the_disk(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        replay = replay_id(run())
        pytester.makepyfile(test_bank=BROKEN.replace("== order", "in (order, None)"))
        result = run(f"--wfstate-replay={replay}")
        result.assert_outcomes(passed=1)
        assert result.ret == pytest.ExitCode.OK

    def test_of_a_run_that_has_changed_fails(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        replay = replay_id(run())
        pytester.makepyfile(test_bank=BROKEN.replace("save", "save_well"))
        result = run(f"--wfstate-replay={replay}")
        result.assert_outcomes(failed=1)
        assert "TraceChanged: The run differs from the one that" in result.stdout.str()
        assert "pytest_wfstate/faults/" not in result.stdout.str()

    def test_of_an_exploration_that_is_not_there_is_an_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        result = run("--wfstate-replay=3:posix-0-0-00000000")
        result.assert_outcomes(passed=1, errors=1)
        assert "belongs to exploration 3 of a test, but this test made 1" in result.stdout.str()

    NOTHING = (
        "wfstate: nothing was replayed. No test that ran reached the exploration of "
        "--wfstate-replay=posix-0-0-00000000. Run the command at the end of the violation's report: it names the test."
    )

    def test_of_nothing_is_no_success(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a="def test_other(): pass", test_b=SOUND)
        result = run("-k", "other", "--wfstate-replay=posix-0-0-00000000")
        result.assert_outcomes(passed=1, deselected=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert result.outlines.count(self.NOTHING) == 1

    def test_of_nothing_leaves_other_exit_codes_alone(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        result = run("-k", "absent", "--wfstate-replay=posix-0-0-00000000")
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        assert self.NOTHING in result.outlines
        assert run("--collect-only", "--wfstate-replay=posix-0-0-00000000").ret == pytest.ExitCode.OK

    def test_under_xdist_counts(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        replay = replay_id(run())
        pytester.makepyfile(test_bank=BROKEN.replace("== order", "in (order, None)"))
        result = pytester.runpytest_subprocess("-n1", *OTHERS[:4], f"--wfstate-replay={replay}")
        result.assert_outcomes(passed=1)
        assert result.ret == pytest.ExitCode.OK

    def test_of_what_is_no_id_is_a_usage_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        result = run("--wfstate-replay=the-last-one")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "--wfstate-replay: 'the-last-one' is not a replay id. Copy one from the end" in result.stderr.str()


class TestKeep:
    def test_keeps_the_disk_of_a_violation(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        result = run("--wfstate-keep=kept")
        kept = pytester.path / "kept" / "test_a_charge_is_remembered"
        assert [path.name for path in kept.iterdir()] == ["note.tmp"]
        assert (kept / "note.tmp").read_text() == "order-1"
        assert "The disk was kept in kept/test_a_charge_is_remembered" in said(result)

    def test_keeps_the_disk_of_an_io_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=CARELESS)
        result = run("--wfstate-keep=kept")
        kept = pytester.path / "kept" / "test_it"
        assert {path.name: path.read_text() for path in kept.iterdir()} == {"note.tmp": "text"}
        assert "The disk was kept in kept/test_it" in said(result)

    def test_keeps_nothing_else(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        run("--wfstate-keep=kept").assert_outcomes(passed=1)
        assert not (pytester.path / "kept").exists()


class TestOptions:
    @pytest.mark.parametrize("where", ["option", "ini"])
    def test_set_the_model(self, pytester: pytest.Pytester, run: Run, where: str) -> None:
        pytester.makepyfile(SOUND)
        if where == "ini":
            pytester.makeini("[pytest]\nwfstate_model = kill")
        result = run("-s", *(["--wfstate-model=kill"] if where == "option" else []))
        assert "kill 5" in result.stdout.str()
        result.stdout.fnmatch_lines(["wfstate: *; model kill*"])

    @pytest.mark.parametrize("where", ["option", "ini"])
    def test_set_the_profile(self, pytester: pytest.Pytester, run: Run, where: str) -> None:
        pytester.makepyfile(
            """
            def test_it(crash):
                def workload(home):
                    for number in range(6):
                        (home / str(number)).write_text("x" * 2000)

                print("tried", crash.explore(workload, lambda disk: None).tried)
            """
        )
        if where == "ini":
            pytester.makeini("[pytest]\nwfstate_profile = quick")
        result = run("-s", *(["--wfstate-profile=quick"] if where == "option" else []))
        assert "tried 500" in result.stdout.str()
        result.stdout.fnmatch_lines(["wfstate: *; profile quick; *"])

    def test_a_model_that_a_test_names_counts(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND.replace("workload, check", "workload, check, model='xfs'"))
        assert "xfs " in run("-s", "--wfstate-model=kill").stdout.str()

    @pytest.mark.parametrize(
        ("name", "known"), [("profile", "quick, default, thorough"), ("model", "kill, ext4, xfs, posix")]
    )
    @pytest.mark.parametrize("where", ["option", "ini"])
    def test_an_unknown_value_is_a_usage_error(
        self, pytester: pytest.Pytester, run: Run, name: str, known: str, where: str
    ) -> None:
        pytester.makepyfile(SOUND)
        if where == "ini":
            pytester.makeini(f"[pytest]\nwfstate_{name} = big")
        result = run(*([f"--wfstate-{name}=big"] if where == "option" else []))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        source = f"--wfstate-{name}" if where == "option" else f"the ini setting wfstate_{name}"
        assert f"{source} is 'big', which is unknown. Choose from: {known}." in result.stderr.str()


class TestUnmeasured:
    def test_skips_with_the_reason_at_the_line_of_the_test(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_c=UNMEASURED.replace("None)", "None, unmeasured='skip')"))
        result = run("-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED [[]1] test_c.py:2: NOT_MEASURED: nothing was written below home: *"])


class TestSummary:
    def test_counts_workloads_states_and_verdicts(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a=SOUND, test_b=BROKEN, test_c=UNMEASURED)
        result = run()
        result.assert_outcomes(passed=1, failed=2)
        (line,) = [line for line in result.outlines if line.startswith("wfstate: 3")]
        assert re.fullmatch(r"wfstate: 3 workloads, \d+ states, 1 violation, 1 not measured, [\d,]+ states/s", line)

    def test_an_io_error_that_was_not_told_is_a_violation(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(CARELESS)
        assert "1 workload, 3 states, 1 violation, 0 not measured" in run().stdout.str()

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
                "wfstate: 3 workloads, * states, 1 violation, 1 not measured, * states/s",
            ]
        )
        assert result.stdout.str().count("wfstate: 3 workloads") == 1

    def test_junit_has_what_an_exploration_came_to(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_b=BROKEN)
        result = run("--junitxml=report.xml")
        report = xml.etree.ElementTree.parse(pytester.path / "report.xml")
        found = {one.attrib["name"]: one.attrib["value"] for one in report.iter("property")}
        assert found.pop("wfstate_replay") == replay_id(result)
        assert float(found.pop("wfstate_seconds")) >= 0
        assert int(found.pop("wfstate_states")) > 3
        assert int(found.pop("wfstate_possible")) > int(found.pop("wfstate_skipped"))
        assert found == {"wfstate_verdict": "VIOLATED", "wfstate_model": "posix"}


LONG = """
import os

import pytest
from pytest_wfstate.faults.crash import explorer
from pytest_wfstate.report import progress

TICK = 0.02


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    # A clock that goes on by itself, so that nobody has to wait.
    time = [0.0]

    def now():
        time[0] += TICK
        return time[0]

    monkeypatch.setattr(explorer, "now", now)
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
        """What a run writes to a terminal."""
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
