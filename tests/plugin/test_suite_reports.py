"""What a suite reports: violations, errors with their line, JUnit properties, the scorecard."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.plugin.conftest import WITH_XDIST, Run
from tests.plugin.suite_module import CORE, UNSORTED, write_suite

GOLDEN = Path(__file__).parent / "golden" / "suite.txt"


def test_a_wrong_refusal_is_shown_with_its_line(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, "    def load(self, run_id): return dict(found=None)['found']['prompt']")
    run("-k", "paused.load.missing").stdout.fnmatch_lines(
        [
            "paused.load.missing: A record that was never saved is not found.",
            "store.load('a') refused: TypeError",
            "    expected: None",
            "    the store said: TypeError: 'NoneType' object is not subscriptable   test_store.py:*",
        ]
    )


def test_what_fails_without_a_crash_is_not_blamed_on_one(pytester: pytest.Pytester, run: Run) -> None:
    body = "    def save(self, state): return None if self.load(state.run_id) else super().save(state)"
    write_suite(pytester, body)
    result = run("-k", "paused.power.remove or paused.save.replaces", "--wfstate-profile=quick")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, "deselected": result.parseoutcomes()["deselected"]}
    judged = "1 clause judged against the store's own uninterrupted runs, since load() returns a record with another *"
    result.stdout.fnmatch_lines([f"wfstate: TestStore: *; {judged}"])


def test_each_class_shows_why_its_store_cannot_be_opened(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(
        pytester,
        suite="class TestOne(TestStore):\n    def open(self, home): raise OSError('no one')\n"
        "class TestTwo(TestStore):\n    def open(self, home): raise OSError('no two')",
    )
    result = run("-k", "load_missing and not TestStore")
    result.stdout.fnmatch_lines(["E   OSError: no one", "E   OSError: no two"])


def test_an_error_is_shown_at_its_line_after_the_calls_before_it(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, "    def complete(self, run_id): raise OSError(5, 'no disk')")
    result = run("-k", "paused.complete.ends")
    result.stdout.fnmatch_lines(
        [
            ">*raise OSError(5, 'no disk')*",
            "E   OSError: [[]Errno 5[]] no disk",
            "E   paused.complete.ends: A completed run is gone; recovery does not bring it back.",
            "E   store.save(samples.paused('a'))",
            "E   store.claim('a') -> *",
            "E   store.complete('a') raised OSError",
            "test_store.py:*: OSError",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_wfstate/suites*")


HANG = """
    def claim(self, run_id):
        import time
        while True:
            try:
                time.sleep(60)
            except OSError:
                pass
"""
ASYNC_HANG = "    async def claim(self, run_id):\n        import asyncio\n        await asyncio.Event().wait()"


@pytest.mark.parametrize("body", [HANG, ASYNC_HANG], ids=["sync", "async"])
def test_a_hang_fails_its_clause_and_no_other(pytester: pytest.Pytester, run: Run, body: str) -> None:
    write_suite(pytester, body)
    result = run("-k", "paused.claim.missing or paused.save.load or paused.list.sorted", "--wfstate-timeout=0.5")
    assert result.parseoutcomes() == {"passed": 2, "failed": 1, "deselected": result.parseoutcomes()["deselected"]}
    result.stdout.fnmatch_lines(["E *StoreTimeout: claim did not return within 0.5 s. It may be waiting for a lock *"])


@pytest.mark.parametrize("clause", ["paused.random.calls", "paused.kill.claim"])
def test_a_hang_is_not_waited_for_repeatedly(pytester: pytest.Pytester, run: Run, clause: str) -> None:
    write_suite(pytester, HANG)
    assert run("-k", clause, "--wfstate-timeout=0.5").parseoutcomes()["failed"] == 1


@pytest.mark.usefixtures("wide")
def test_open_that_raises_is_shown_in_full_once(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, "    def __init__(self, home): raise ConnectionRefusedError('no server')")
    result = run("-m", CORE)
    number = result.parseoutcomes()["failed"]
    assert number > 5
    assert result.stdout.str().count("E   ConnectionRefusedError: no server") == 1
    text = "open() raises ConnectionRefusedError: see the first failure of this class"
    lines = [line for line in result.outlines if line.startswith("FAILED test_store.py::TestStore::test_")]
    assert len(lines) == number
    has_reasons = pytest.version_tuple >= (9,)  # older ones leave them out of these lines
    assert [text in line for line in lines] == [False, *[has_reasons] * (number - 1)]
    assert result.stdout.str().count("TestStore.test_") == 1, "more than one failure is shown in full"
    result.stdout.fnmatch_lines([f"wfstate: TestStore: core 0/{number}; {number} failed"])


def test_open_that_returns_nothing_is_explained_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        "from pytest_wfstate.suites import PausedSuite\nclass TestStore(PausedSuite):\n    def open(self, home): pass"
    )
    text = run("-m", CORE).stdout.str()
    assert text.count("\nTestStore.open() returned None. It must return the store.") == 1


def test_both_summary_lines_count_alike(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(
        pytester,
        "    def load(self, run_id): return 1",
        suite="    known_failures = {'paused.save.load': 'see #12'}\n    def test_mine(self): assert False",
    )
    result = run("-k", "paused.save.load or paused.save.replaces or kill_save or mine", "--wfstate-profile=quick")
    crash = "def test_none(crash): crash.explore(lambda home: None, lambda disk: None)"
    pytester.makepyfile(test_other=crash)
    other = run("-k", "paused.save.load or paused.save.replaces or kill_save or mine or test_none")
    result.stdout.fnmatch_lines(["wfstate: TestStore: core 0/2, safe 0/1; 2 failed, 1 known to fail, 1 not measured*"])
    other.stdout.fnmatch_lines(
        [
            "wfstate: 1 workload, 0 disks, 2 violations, 2 not measured",
            "wfstate: TestStore: core 0/2, safe 0/1; 2 failed, 1 known to fail, 1 not measured*",
        ]
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("pass", "TestStore has no method open(self, home). Write one*"),
        ("def open(self, home): pass", "TestStore.open() returned None. It must return the store."),
    ],
)
def test_a_suite_that_opens_nothing_says_so(pytester: pytest.Pytester, run: Run, body: str, line: str) -> None:
    pytester.makepyfile(f"from pytest_wfstate.suites import PausedSuite\nclass TestStore(PausedSuite):\n    {body}")
    run("-k", "paused.save.load").stdout.fnmatch_lines([line])


def properties(path: str) -> dict[str, dict[str, str]]:
    cases = ElementTree.parse(path).iter("testcase")
    return {
        case.attrib["name"]: {pair.attrib["name"]: pair.attrib["value"] for pair in case.iter("property")}
        for case in cases
    }


@pytest.mark.parametrize("is_distributed", [False, True], ids=["alone", "xdist"])
def test_junit_has_clause_level_and_result(pytester: pytest.Pytester, run: Run, is_distributed: bool) -> None:
    write_suite(pytester, UNSORTED + "\n    remove = None", suite="    level = 'safe'")
    chosen = "paused.list.sorted or paused.save.load or paused.remove.claimed or paused.kill.save or paused.power.save"
    options = ("--wfstate-profile=quick", "-o", "junit_family=xunit1", "--junitxml=report.xml", "-k", chosen)
    result = pytester.runpytest_subprocess("-n1", *WITH_XDIST, *options) if is_distributed else run(*options)
    reported = properties(str(pytester.path / "report.xml"))
    results = {
        name: tuple(pairs[f"wfstate_{key}"] for key in ("clause", "level", "result"))
        for name, pairs in reported.items()
    }
    assert results == {
        "test_list_sorted": ("paused.list.sorted", "core", "failed"),
        "test_save_load": ("paused.save.load", "core", "passed"),
        "test_remove_claimed": ("paused.remove.claimed", "safe", "not offered"),
        "test_kill_save": ("paused.kill.save", "safe", "passed"),
    }
    assert reported["test_kill_save"]["wfstate_verdict"] == "CLEAN"
    result.stdout.fnmatch_lines(["wfstate: TestStore: core 1/2, safe 1/2; 1 failed, 1 not offered, 1 not asked"])


ALL = """
from pytest_wfstate.stores import file
from pytest_wfstate.suites import SUITES

def suite_of(suite):
    kind = suite.__name__.removesuffix("Suite")
    return type(f"Test{kind}", (suite,), {"open": lambda self, home: getattr(file, f"File{kind}Store")(home)})

globals().update({f"Test{contract.capitalize()}": suite_of(suite) for contract, suite in SUITES.items()})
"""
KILLED = "wfstate(contract='snapshots', fault='kill')"


def test_all_suites_pass_in_two_processes_without_a_plugin_for_async_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ALL)
    options = ("-n", "2", "--wfstate-profile=quick", *WITH_XDIST, "-m", f"{CORE} or {KILLED}")
    result = pytester.runpytest_subprocess(*options)
    assert set(result.parseoutcomes()) == {"passed"}
    result.stdout.fnmatch_lines(["wfstate: TestSnapshots: core 9/9, safe */*"])


def test_many_suites_are_summed_up_in_a_line(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester)
    with pytester.path.joinpath("test_store.py").open("a") as file:
        file.writelines(f"\nclass Test{number}(TestStore): pass" for number in range(9))
    run("-k", "paused.load.missing").stdout.fnmatch_lines(["wfstate: 10 suites: core 10/10"])


NEW = """
import os
from pytest_wfstate import PausedWorkflow

class MyStore:
    def __init__(self, home):
        self.home = home

    def path(self, run_id, state="json"):
        return self.home / f"{run_id.replace('/', '_')}.{state}"

    def save(self, paused):
        self.path(paused.run_id).write_text(paused.model_dump_json())

    def load(self, run_id):
        path = self.path(run_id)
        return PausedWorkflow.model_validate_json(path.read_text()) if path.exists() else None

    def claim(self, run_id):
        paused = self.load(run_id)
        if paused is not None:
            os.rename(self.path(run_id), self.path(run_id, "inflight"))
        return paused

    def complete(self, run_id):
        self.path(run_id, "inflight").unlink(missing_ok=True)
"""
TESTED = """
from pytest_wfstate.suites import PausedSuite

class TestMyStore(PausedSuite):
    def open(self, home):
        return MyStore(home)
"""
ASYNC_NEW = re.sub(r"    def (?!_|path)", "    async def ", NEW).replace("= self.load", "= await self.load")
QUICK = "not race_ and not errors_ and (power_save or not power_)"


@pytest.mark.parametrize("source", [NEW, ASYNC_NEW], ids=["sync", "async"])
def test_a_new_store_gets_its_bugs_by_clause(pytester: pytest.Pytester, run: Run, source: str) -> None:
    """It also lacks half the methods: the clauses that need them are skipped, and counted."""
    assert len(NEW.strip().splitlines()) == 25
    pytester.path.joinpath("test_mine.py").write_text(source + TESTED)
    result = run("-rs", "--wfstate-profile=quick", "-k", QUICK)
    counts = result.parseoutcomes()
    assert sum(counts.values()) > 40
    assert counts["skipped"] > 10
    result.stdout.fnmatch_lines(
        [
            "paused.ids.never-collide: Two ids never share a record, whatever characters they hold.",
            "paused.kill.save: If the process is killed during save, every acknowledged call survives and save *",
            "  it died *test_mine.py:13*",
            "wfstate: TestMyStore: core */*, safe */*, hardened */*; * failed, * not offered, * not applicable*",
            "SKIPPED * test_mine.py:*: not offered: MyStore has no method remove",
        ]
    )


def test_a_retry_of_the_suite_is_reported(pytester: pytest.Pytester, run: Run) -> None:
    gives_up = """
    is_broken = False
    def save(self, paused):
        try:
            self.is_broken or super().save(paused)
        except OSError:
            self.is_broken = True
            raise
"""
    write_suite(pytester, gives_up)
    run("--wfstate-profile=quick", "-k", "paused.errors.save").stdout.fnmatch_lines(
        ["*the workload * the store raised OSError; the suite retried the call and it succeeded"]
    )


def test_the_report_of_a_violation_is_the_golden_one(pytester: pytest.Pytester, run: Run) -> None:
    """A script and a crash: the clause, the smallest case, what was expected, the line, the replay."""
    pytester.path.joinpath("test_mine.py").write_text(NEW + TESTED)
    shown = run("--wfstate-profile=quick", "-k", "paused.ids.never-collide or paused.kill.save").stdout.str()
    report = re.search(r"= FAILURES =+\n(.*?)wfstate: ", shown, re.DOTALL)
    assert report, shown
    assert re.sub(r"in \d+\.\d+ s", "in 0.00 s", report[1]) == GOLDEN.read_text()
