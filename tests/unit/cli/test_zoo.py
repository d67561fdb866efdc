"""The zoo, told: a difference between what an animal does and what it is said to do is never overlooked."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate.cli.zoo import caught, count, differences, is_caught, matrix, without_animal
from pytest_wfstate.suites.clauses import Clause
from pytest_wfstate.zoo import KnownBadStore

BAT = KnownBadStore("x.bat", "x", "It sleeps by day.", ("x.a.b", "x.a.c"), Path)
CLAUSES = [Clause(f"x.a.{name}", "core", "none", "It is.", f"test_a_{name}") for name in "bcde"]


def test_an_animal_is_told_with_what_caught_it() -> None:
    told = caught(BAT, {"x.a.b": "known", "x.a.c": "known"})
    assert told.splitlines() == ["x.bat", "  It sleeps by day.", "  caught by x.a.b, x.a.c"]


def test_an_animal_that_got_away_is_told() -> None:
    found = {"x.a.b": "known", "x.a.c": "failed"}
    assert not is_caught(BAT, found)
    assert caught(BAT, found).splitlines()[-1] == "  NOT caught by x.a.c: failed"
    assert "NOT caught by x.a.b: not run" in caught(BAT, {})


def test_an_animal_that_breaks_nothing_is_not_caught() -> None:
    assert not is_caught(KnownBadStore("x.bat", "x", "", (), Path), {})


def test_an_animal_that_there_is_no_server_for_did_not_get_away() -> None:
    eel = KnownBadStore("x.eel", "x", "It swims.", ("x.a.b",), Path, server="sea")
    told, is_clean = count([BAT, eel], {"x.bat": dict.fromkeys(BAT.breaks, "known"), "x.eel": {"x.a.b": "skipped"}})
    assert is_clean
    assert told.splitlines() == [
        "1 of 2 animals are caught by every clause they are said to break.",
        "1 were not tried, as there is no server for them: pip install 'pytest-wfstate[servers]'.",
    ]
    assert differences([eel], {"x.eel": {"x.a.b": "skipped"}}) == []
    assert not count([BAT], {"x.bat": dict.fromkeys(BAT.breaks, "skipped")})[1]
    assert not count([eel], {"x.eel": {"x.a.b": "failed"}})[1]


def test_the_matrix_has_a_mark_for_each_result() -> None:
    found = {"x.bat": {"x.a.b": "failed", "x.a.c": "passed", "x.a.d": "failed", "x.a.e": "passed"}}
    assert matrix([BAT], CLAUSES, found).splitlines()[-2:] == ["       1234", "x.bat  xo!."]
    found = {"x.bat": {"x.a.b": "not measured", "x.a.d": "not measured", "x.a.e": "not offered"}}
    assert matrix([BAT], CLAUSES, found).splitlines()[-1] == "x.bat  oo?-"


def test_differences_are_told_both_ways() -> None:
    found = {"x.bat": {"x.a.b": "failed", "x.a.c": "passed", "x.a.d": "failed", "x.a.e": "not measured"}}
    assert differences([BAT], found) == [
        "x.bat is said to break, and does not, x.a.c",
        "x.bat breaks, and is not said to, x.a.d",
    ]


def test_a_clause_that_never_saw_an_animal_is_a_difference() -> None:
    assert differences([BAT], {"x.bat": {"x.a.b": "failed"}}) == ["x.bat is said to break, and does not, x.a.c"]


def test_random_calls_may_find_more_than_is_said_and_not_less() -> None:
    clause = Clause("x.random.calls", "safe", "none", "It is.", "test_random_calls")
    bold = KnownBadStore("x.boa", "x", "It sleeps by day.", (clause.id,), Path)
    assert differences([BAT], {"x.bat": {"x.a.b": "failed", "x.a.c": "failed", clause.id: "failed"}}) == []
    assert matrix([BAT], [clause], {"x.bat": {clause.id: "failed"}}).splitlines()[-1] == "x.bat  ~"
    assert differences([bold], {"x.boa": {clause.id: "passed"}}) == [
        f"x.boa is said to break, and does not, {clause.id}"
    ]


def test_a_clause_without_an_animal_is_told() -> None:
    assert without_animal([BAT], CLAUSES) == ["no animal breaks x.a.d", "no animal breaks x.a.e"]
