"""Which clauses of a suite run: by id, mark and level; known failures; settings that mean nothing."""

from __future__ import annotations

import pytest

from pytest_wfstate.engine.random_calls import EXAMPLES
from pytest_wfstate.faults.bounds import PROFILES, Bounds
from tests.plugin.conftest import Items, Run
from tests.plugin.suite_module import CORE, UNSORTED, write_suite


def test_a_suite_has_an_item_per_clause(pytester: pytest.Pytester, items: Items) -> None:
    write_suite(pytester)
    assert len(items()) > 40
    assert items("-k", "paused.claim.one-winner") == ["TestStore::test_claim_one_winner"]


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (("-k", "paused.list."), "list_"),
        (("-m", "wfstate(fault='kill')"), "kill_"),
        (("-m", "wfstate(fault='power')"), "power_"),
        (("-m", "wfstate(fault='errors')"), "errors_"),
        (("-m", "wfstate(contract='paused')"), ""),
        (("-m", CORE), ""),
        (("-m", "wfstate(level='safe', fault='input')"), ""),
    ],
)
def test_clauses_are_chosen_by_topic_and_mark(
    pytester: pytest.Pytester, items: Items, options: tuple[str, str], prefix: str
) -> None:
    write_suite(pytester)
    chosen = items(*options)
    assert 1 < len(chosen) <= len(items())
    assert all(name.startswith(f"TestStore::test_{prefix}") for name in chosen)


def test_the_mark_is_registered(run: Run) -> None:
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.wfstate(contract, level, fault):*"])


@pytest.mark.parametrize("level", ["core", "safe"])
def test_clauses_above_the_level_are_not_asked(pytester: pytest.Pytester, items: Items, level: str) -> None:
    write_suite(pytester, suite=f"    level = {level!r}")
    asked, every = items(), items("-m", "wfstate(level='core') or not wfstate(level='core')")
    assert asked == every
    write_suite(pytester)
    assert len(asked) < len(items())


def test_clauses_above_the_level_are_counted(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, suite="    level = 'core'")
    result = run()
    number = result.parseoutcomes()["deselected"]
    assert number > 40
    result.stdout.fnmatch_lines([f"wfstate: TestStore: core */*; {number} not asked"])


def test_a_known_failure_above_the_level_is_asked(pytester: pytest.Pytester, items: Items) -> None:
    write_suite(pytester, suite="    level = 'core'\n    known_failures = {'paused.kill.save': 'later'}")
    assert "TestStore::test_kill_save" in items()


def test_a_known_failure_is_expected_to_fail(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, UNSORTED, suite="    known_failures = {'paused.list.sorted': 'see #12'}")
    result = run("-k", "paused.list.sorted", "-rx")
    assert result.parseoutcomes()["xfailed"] == 1
    result.stdout.fnmatch_lines(["wfstate: TestStore: core 0/1; 1 known to fail", "XFAIL *test_list_sorted - see #12"])


@pytest.mark.parametrize(
    ("body", "known", "selected", "lines"),
    [
        (
            "",
            "paused.list.sorted",
            "paused.list.sorted",
            ["paused.list.sorted passes, but known_failures of TestStore says that it fails: 'see #12'. Remove the *"],
        ),
        (
            "    def load(self, run_id): return 1",
            "paused.kill.save",
            "paused.kill.save",
            [
                "NOT_MEASURED. Nothing could be seen, as load() returned the same with * and without",
                "The store violates its contract even without a fault. Fix this first:",
                "known_failures of TestStore says that it fails: 'see #12'. Begin the reason with NOT_MEASURED if, *",
                "wfstate: TestStore: safe 0/1; 1 not measured",
            ],
        ),
        (
            "",
            "paused.list.sortde",
            "whole",
            ["known_failures of TestStore names 'paused.list.sortde', which is not a clause of the paused contract. *"],
        ),
    ],
    ids=["passes", "not measured", "not a clause"],
)
def test_a_known_failure_that_does_not_fail_is_an_error(
    pytester: pytest.Pytester, run: Run, body: str, known: str, selected: str, lines: list[str]
) -> None:
    write_suite(pytester, body, suite=f"    known_failures = {{{known!r}: 'see #12'}}")
    result = run("-k", selected)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(lines)


UNMEASURED = "    known_failures = {{'{}': 'NOT_MEASURED: see #12'}}"
BROKEN_LOAD = "    def load(self, run_id): return 1"


def test_a_clause_can_be_known_to_be_unmeasured(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, BROKEN_LOAD, suite=UNMEASURED.format("paused.kill.save"))
    result = run("-k", "paused.kill.save", "-rx")
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["wfstate: TestStore: safe 0/1; 1 known to fail"])


@pytest.mark.parametrize(
    ("body", "clause", "line"),
    [
        (UNSORTED, "paused.list.sorted", "known_failures of TestStore says that it was not measured: 'NOT_MEASURED: *"),
        ("", "paused.save.load", "paused.save.load passes, but known_failures of TestStore says that it was not *"),
    ],
    ids=["violated", "passes"],
)
def test_a_clause_known_to_be_unmeasured_must_be(
    pytester: pytest.Pytester, run: Run, body: str, clause: str, line: str
) -> None:
    write_suite(pytester, body, suite=UNMEASURED.format(clause))
    result = run("-k", clause)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([line, "wfstate: TestStore: *; 1 failed"])


@pytest.mark.parametrize(
    ("clause", "level", "reason"),
    [
        ("power.save", "hardened", "see #12"),
        ("random.calls", "safe", "see #12"),
        ("kill.save", "safe", "INCOMPLETE: slow"),
    ],
)
def test_a_known_failure_that_chance_hides_is_not_an_error(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, clause: str, level: str, reason: str
) -> None:
    """A bound cuts off explorations and random calls, and a fast machine completes what a slow one does not."""
    monkeypatch.setitem(PROFILES, "quick", Bounds(states=3 if clause == "power.save" else 500))
    monkeypatch.setitem(EXAMPLES, "quick", 1)
    write_suite(pytester, suite=f"    known_failures = {{'paused.{clause}': '{reason}'}}")
    result = run("-k", f"paused.{clause}", "-rx", "--wfstate-profile=quick")
    result.assert_outcomes(xfailed=1)
    why = "a slower machine may not complete it" if "INCOMPLETE" in reason else "tried only a part of what can fail"
    result.stdout.fnmatch_lines(
        [
            f"wfstate: TestStore: {level} 0/1; 1 known to fail but not seen to*",
            f"XFAIL *test_{clause.replace('.', '_')} - {reason} (it passed, but {why})",
        ]
    )


@pytest.mark.parametrize(
    ("body", "seconds", "reason", "outcome"),
    [
        ("", 0, "INCOMPLETE: slow", "xfailed"),
        ("", 0, "NOT_MEASURED: see #12", "failed"),
        (BROKEN_LOAD, 600, "INCOMPLETE: slow", "failed"),
    ],
)
def test_a_clause_can_be_known_to_be_incomplete(
    pytester: pytest.Pytester,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    seconds: float,
    reason: str,
    outcome: str,
) -> None:
    monkeypatch.setitem(PROFILES, "quick", Bounds(seconds=seconds))
    write_suite(pytester, body, suite=f"    known_failures = {{'paused.kill.save': '{reason}'}}")
    result = run("-k", "paused.kill.save", "--wfstate-profile=quick")
    assert result.parseoutcomes()[outcome] == 1


@pytest.mark.parametrize(
    "change",
    ["def test_list_sorted(self): pass", "test_list_sorted = None", "test_list_sorted = PausedSuite.test_save_load"],
)
def test_a_clause_that_is_overridden_or_removed_fails_one_item(
    pytester: pytest.Pytester, run: Run, change: str
) -> None:
    write_suite(pytester, suite=f"    {change}")
    result = run("-k", "whole or list_sorted")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["TestStore overrides or removes clauses of PausedSuite: paused.list.sorted. *"])


def test_a_subclass_may_add_tests(pytester: pytest.Pytester, run: Run) -> None:
    write_suite(pytester, suite="    def test_mine(self, tmp_path): assert self.open(tmp_path).list() == []")
    assert run("-k", "whole or mine").parseoutcomes()["passed"] == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("medium = 'disc'", "medium of TestStore is 'disc'. Choose one of: disk, server, memory."),
        ("level = 'high'", "level of TestStore is 'high'. Choose one of: core, safe, hardened."),
        ("known_failures = ['a']", "known_failures of TestStore is ['a']. It must map clause ids to reasons. *"),
        (
            "known_failures = {'a': None}",
            "known_failures of TestStore is {'a': None}. It must map clause ids to reasons. *",
        ),
    ],
)
def test_an_invalid_setting_is_an_error_at_collection(
    pytester: pytest.Pytester, run: Run, setting: str, message: str
) -> None:
    write_suite(pytester, suite=f"    {setting}")
    result = run()
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines([f"E*InvalidSetting: {message}".replace("[", "[[]")])


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", ""])
def test_a_timeout_is_a_number_of_seconds(pytester: pytest.Pytester, run: Run, value: str) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = run(f"--wfstate-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().startswith(
        f"ERROR: --wfstate-timeout is {value!r}, which is not a positive number of seconds."
    )
