"""The crash lab as its users see it: the fixture, the text of a violation, and the options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugin.bank import BROKEN, CARELESS, SOUND, UNMEASURED, failure
from tests.plugin.conftest import ALONE, Run

pytestmark = pytest.mark.usefixtures("notes")

GOLDEN = Path(__file__).parent / "golden"


class TestViolation:
    @pytest.mark.parametrize(("source", "golden"), [(BROKEN, "crash.txt"), (CARELESS, "io_error.txt")])
    def test_has_the_golden_text(self, pytester: pytest.Pytester, run: Run, source: str, golden: str) -> None:
        """Where the text of a crash changes, so does the README's."""
        pytester.makepyfile(test_bank=source)
        text = failure(run())
        text = re.sub(r", in [\d.]+ s\.", ", in 0.00 s.", text)
        text = re.sub(r"-[0-9a-f]{8}$", "-00000000", text, flags=re.MULTILINE)
        assert text.splitlines() == (GOLDEN / golden).read_text().splitlines()

    def test_points_at_the_line_of_the_test(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_bank=BROKEN)
        result = run()
        result.stdout.fnmatch_lines([">       crash.explore(workload, check)", "test_bank.py:24: CrashBug"])
        assert "pytest_wfstate/faults" not in result.stdout.str()
        assert "contextlib.py" not in result.stdout.str()

    def test_starts_in_the_short_summary(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_b=BROKEN.replace("test_a_charge_is_remembered", "test_it"))
        run().stdout.fnmatch_lines(["FAILED test_b.py::test_it - pytest_wfstate.CrashBug: A power cut*"])

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
        fault = "a crash" if call == "explore" else "an I/O error"
        result.stdout.fnmatch_lines(
            [
                '>       raise ValueError("I never pass")',
                "E       ValueError: I never pass",
                f">       crash.{call}(*",
                f"E*.CheckFails: Your check fails even without {fault}: ValueError at test_it.py:5. Fix it first: *",
                "test_it.py:7: CheckFails",
            ]
        )
        assert failure(result).count("I never pass") == 1

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
    """The lab works on real files, so it refuses a fake disk."""

    REFUSAL = "crash and fake_disk cannot be used in the same test: the lab records real files"

    @pytest.mark.parametrize("call", ["explore", "errors", "kill", "points"])
    def test_asked_for_after_crash_is_refused_where_the_lab_is_used(
        self, pytester: pytest.Pytester, run: Run, call: str
    ) -> None:
        arguments = {"kill": ", at=crash.before('write')", "points": ""}.get(call, ", print")
        pytester.makepyfile(f"def test_it(crash, fake_disk):\n    crash.{call}(print{arguments})")
        result = run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f">*crash.{call}(*", f"E*NoRealDisk: {self.REFUSAL}*", "*.py:2: NoRealDisk"])
        assert "pytest_wfstate/faults" not in result.stdout.str()

    @pytest.mark.parametrize("fixture", ["fake_disk", "fs"])
    def test_asked_for_before_crash_is_refused_at_once(self, pytester: pytest.Pytester, run: Run, fixture: str) -> None:
        pytester.makepyfile(f"def test_it({fixture}, crash): pass")
        result = run()
        result.assert_outcomes(errors=1)
        assert self.REFUSAL in result.stdout.str()
        assert "plugin.py" not in result.stdout.str()

    def test_may_be_used_by_another_test(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile(test_a="def test_it(fake_disk): pass", test_b=SOUND)
        run().assert_outcomes(passed=2)

    def test_is_refused_before_anything_of_the_lab_is_loaded(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(test_a="def test_it(fake_disk, crash): pass", test_b=SOUND)
        pytester.runpytest_subprocess(*ALONE).assert_outcomes(passed=1, errors=1)


class TestOptions:
    MANY = """
def test_it(crash):
    explored = crash.explore(lambda home: [(home / name).write_text("x" * 2000) for name in "abcdef"], print)
    print(explored.model, explored.tried)
"""

    @pytest.mark.parametrize("where", ["option", "ini"])
    @pytest.mark.parametrize(
        ("source", "setting", "value", "printed"),
        [(SOUND, "model", "kill", "kill 5"), (MANY, "profile", "quick", "posix 50")],
        ids=["model", "profile"],
    )
    def test_set(
        self, pytester: pytest.Pytester, run: Run, where: str, source: str, setting: str, value: str, printed: str
    ) -> None:
        pytester.makepyfile(source)
        if where == "ini":
            pytester.makeini(f"[pytest]\nwfstate_{setting} = {value}")
        result = run("-s", *([f"--wfstate-{setting}={value}"] if where == "option" else []))
        assert printed in result.stdout.str()
        result.stdout.fnmatch_lines([f"wfstate: *; {setting} {value}*"])

    def test_a_test_may_choose_another_model(self, pytester: pytest.Pytester, run: Run) -> None:
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
