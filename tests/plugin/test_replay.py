"""Replaying a violation by its id, and keeping its disk."""

from __future__ import annotations

import pytest

from tests.plugin.bank import BROKEN, CARELESS, SOUND, failure, replay_id
from tests.plugin.conftest import OTHERS, Run

pytestmark = pytest.mark.usefixtures("notes")


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

    @pytest.mark.parametrize("workers", [0, 1])
    def test_passes_once_the_check_does(self, pytester: pytest.Pytester, run: Run, workers: int) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        replay = f"--wfstate-replay={replay_id(run())}"
        pytester.makepyfile(test_bank=BROKEN.replace("== order", "in (order, None)"))
        result = pytester.runpytest_subprocess("-n1", *OTHERS[:4], replay) if workers else run(replay)
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


class TestKeep:
    @pytest.mark.parametrize(
        ("source", "test", "text"), [(BROKEN, "test_a_charge_is_remembered", "order-1"), (CARELESS, "test_it", "text")]
    )
    def test_keeps_the_disk(self, pytester: pytest.Pytester, run: Run, source: str, test: str, text: str) -> None:
        pytester.makepyfile(test_bank=source)
        result = run("--wfstate-keep=kept")
        kept = pytester.path / "kept" / test
        assert {path.name: path.read_text() for path in kept.iterdir()} == {"note.tmp": text}
        assert f"The disk was kept in kept/{test}" in failure(result)

    def test_keeps_nothing_else(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(SOUND)
        run("--wfstate-keep=kept").assert_outcomes(passed=1)
        assert not (pytester.path / "kept").exists()
