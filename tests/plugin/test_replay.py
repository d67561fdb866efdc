"""Replaying a violation by its id, and keeping its disk."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.bank import BROKEN, CARELESS, SOUND, failure, replay_id
from tests.plugin.conftest import ALONE, WITH_XDIST, Run

pytestmark = pytest.mark.usefixtures("notes")

PARAMETERS = "@pytest.mark.parametrize('text', ['a $HOME \"b\"'])"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would paste it."""
    command = f"{Path(sys.executable).parent}/{command.splitlines()[0]} {' '.join(ALONE)}"
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)


THREADED = """
from concurrent.futures import ThreadPoolExecutor

from notes import read, save_well


def test_a_step_that_is_done_is_done(crash):
    ledger = crash.world([])

    def agent(home):
        with ThreadPoolExecutor() as saver:
            for step in ("pay", "mail"):
                ledger.append(step)
                saver.submit(save_well, home, step)

    def check(disk):
        assert len(disk.effects) < 2 or read(disk.home), "the payment is forgotten"

    crash.explore(agent, check, model="kill")
"""


class TestReplay:
    @pytest.mark.parametrize(
        ("source", "test"), [(BROKEN, "test_a_charge_is_remembered"), (CARELESS, "test_it")], ids=["crash", "error"]
    )
    def test_reproduces_it(self, pytester: pytest.Pytester, run: Run, source: str, test: str) -> None:
        pytester.makepyfile(test_bank=source)
        first = run()
        assert f'Replay it:  pytest "test_bank.py::{test}" --wfstate-replay={replay_id(first)}' in failure(first)
        again = run(f"test_bank.py::{test}", f"--wfstate-replay={replay_id(first)}")
        again.assert_outcomes(failed=1)
        assert replay_id(again) == replay_id(first)
        assert failure(again).split("posix:")[0].split("This is")[0] == failure(first).split("posix:")[0]
        assert "This is one disk, replayed." in failure(again)

    @pytest.mark.parametrize("options", [(), ("-n1",)], ids=["", "xdist"])
    def test_the_command_works_in_a_folder_of_the_project(
        self, pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
    ) -> None:
        pytester.makeini("[pytest]\npythonpath = .")
        folder = pytester.mkdir("tests")
        (folder / "test_bank.py").write_text(BROKEN)
        monkeypatch.chdir(folder)
        first = pytester.runpytest_subprocess(*WITH_XDIST, *options) if options else run()
        again = shell(failure(first).partition("Replay it:  ")[2])
        assert again.returncode == pytest.ExitCode.TESTS_FAILED
        assert "This is one disk, replayed." in again.stdout

    def test_the_command_has_the_options_that_choose_the_test(self, pytester: pytest.Pytester, run: Run) -> None:
        source = BROKEN.replace("(crash)", "(crash, resume_store, text)").replace("def test", f"{PARAMETERS}\ndef test")
        pytester.makepyfile(test_bank="import pytest\n" + source)
        first = run("--wfstate-backends=sqlite", "--wfstate-profile=quick", "--wfstate-corpus=none")
        command = failure(first).partition("Replay it:  ")[2]
        assert " --wfstate-backends=sqlite --wfstate-profile=quick --wfstate-replay=" in command
        assert "This is one disk, replayed." in shell(command).stdout

    def test_reproduces_what_threads_did(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_agent=THREADED)
        first = run()
        assert "3 orders of its threads and tasks" in failure(first)
        assert re.match(r"(late|t[0-9._]+):kill-", replay_id(first))
        again = run(f"--wfstate-replay={replay_id(first)}")
        again.assert_outcomes(failed=1)
        assert replay_id(again) == replay_id(first)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_passes_once_the_check_does(self, pytester: pytest.Pytester, run: Run, workers: int) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        replay = f"--wfstate-replay={replay_id(run())}"
        pytester.makepyfile(test_bank=BROKEN.replace("== order", "in (order, None)"))
        result = pytester.runpytest_subprocess("-n1", *WITH_XDIST, replay) if workers else run(replay)
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

    def test_of_an_exploration_that_is_missing_is_an_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        result = run("--wfstate-replay=3:posix-0-0-00000000")
        result.assert_outcomes(passed=1, errors=1)
        assert "belongs to exploration 3 of a test, but this test made 1" in result.stdout.str()

    NOTHING = (
        "wfstate: nothing was replayed. No test that ran reached the exploration of "
        "--wfstate-replay=posix-0-0-00000000. Run the command at the end of the violation's report: it names the test."
    )

    def test_of_nothing_fails_the_session(self, pytester: pytest.Pytester, run: Run) -> None:
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

    def test_of_an_invalid_id_is_a_usage_error(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        result = run("--wfstate-replay=the-last-one")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "--wfstate-replay: 'the-last-one' is not a replay id. Copy one from the end" in result.stderr.str()


TWO_VIOLATIONS = """
import pytest
from pytest_wfstate import CrashBug

def test_it(crash):
    for number in "12":
        def workload(home):
            (home / "note").write_text(number)
            (home / "end").touch()

        def check(disk):
            assert not disk.crash.startswith("after write of") or not (disk.home / "note").read_text()

        with pytest.raises(CrashBug):
            crash.explore(workload, check, model="kill")
"""


class TestKeep:
    @pytest.mark.parametrize(
        ("source", "test", "text"), [(BROKEN, "test_a_charge_is_remembered", "order-1"), (CARELESS, "test_it", "text")]
    )
    def test_keeps_the_disk(self, pytester: pytest.Pytester, run: Run, source: str, test: str, text: str) -> None:
        pytester.makepyfile(test_bank=source)
        result = run("--wfstate-keep=kept")
        kept = pytester.path / "kept" / f"test_bank.py-{test}"
        assert {path.name: path.read_text() for path in kept.iterdir()} == {"note.tmp": text}
        assert f"The disk was kept in kept/test_bank.py-{test}" in failure(result)

    def test_never_overwrites_what_was_kept(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=TWO_VIOLATIONS, test_other=TWO_VIOLATIONS)
        for _ in range(2):
            run("--wfstate-keep=kept").assert_outcomes(passed=2)
        names = [
            f"test_{module}.py-test_it{number}" for module in ("bank", "other") for number in ("", "-2", "-3", "-4")
        ]
        assert sorted(path.name for path in (pytester.path / "kept").iterdir()) == names
        assert [(pytester.path / "kept" / name / "note").read_text() for name in names] == ["1", "2"] * 4

    def test_keeps_nothing_else(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        run("--wfstate-keep=kept").assert_outcomes(passed=1)
        assert not (pytester.path / "kept").exists()
