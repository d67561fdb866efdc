"""`wfstate zoo`: a difference between what a known-bad store breaks and what it names is never overlooked."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pytest_wfstate.cli.clauses import all_clauses
from pytest_wfstate.cli.main import main
from pytest_wfstate.cli.zoo import caught, count, differences, is_caught, matrix, without_store
from pytest_wfstate.suites.clauses import Clause
from pytest_wfstate.zoo import KNOWN_BAD_STORES, KnownBadStore
from tests.unit.cli.conftest import cells

BAD = KnownBadStore("x.bad", "x", "It forgets.", ("x.a.b", "x.a.c"), Path)
REMOTE = KnownBadStore("x.remote", "x", "It forgets.", ("x.a.b",), Path, server="redis_server")
CLAUSES = [Clause(f"x.a.{name}", "core", "none", "It is.", f"test_a_{name}") for name in "bcde"]


@pytest.fixture
def store() -> KnownBadStore:
    """A store that breaks clauses without a fault."""
    return next(each for each in KNOWN_BAD_STORES if each.name == "resume.takes-any-id")


@pytest.fixture
def few_clauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the clauses that explore nothing."""
    few = [
        clause for clause in all_clauses("resume") if clause.fault not in ("kill", "power", "errors", "race", "cancel")
    ]
    monkeypatch.setattr("pytest_wfstate.cli.zoo.all_clauses", lambda _: few)


def test_a_store_is_shown_with_its_story_and_what_caught_it(
    capsys: pytest.CaptureFixture[str], store: KnownBadStore
) -> None:
    assert main(["zoo", store.name]) == 0
    name, *rest, last = capsys.readouterr().out.splitlines()
    text = " ".join(" ".join(rest).split())
    assert name == store.name
    assert store.story in text
    assert all(clause in text.partition("caught by")[2] for clause in store.breaks)
    assert re.fullmatch(r"(\d+) of \1 known-bad stores were caught by every clause that should catch them\.", last)


@pytest.mark.usefixtures("few_clauses")
def test_the_full_zoo_is_a_matrix(capsys: pytest.CaptureFixture[str], store: KnownBadStore) -> None:
    assert main(["zoo", "--full", store.name]) == 0
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith(store.name)]
    assert cells(row)[1].count("x") == len(store.breaks)
    assert out.endswith("known-bad stores break exactly the clauses that they name.\n")


@pytest.mark.parametrize(
    ("arguments", "contracts"),
    [
        (["unicorn"], "effects, paused, resume, snapshots, runs, history, queue, lock"),
        (["--contract", "paused", "resume."], "paused"),
    ],
)
def test_a_name_that_no_store_has_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], contracts: str
) -> None:
    assert main(["zoo", *arguments]) == 2
    number = sum(store.contract in contracts for store in KNOWN_BAD_STORES)
    assert capsys.readouterr().err == (
        f"wfstate zoo: no known-bad store's name starts with {arguments[-1]}. Looked at the {number} of {contracts}. "
        "`wfstate zoo` shows them all.\n"
    )


@pytest.mark.usefixtures("few_clauses")
def test_a_store_that_breaks_other_clauses_than_it_names_fails_the_matrix(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: KnownBadStore
) -> None:
    wrong = dataclasses.replace(store, breaks=("resume.save.load", "resume.ids.refused"))
    monkeypatch.setattr("pytest_wfstate.zoo.KNOWN_BAD_STORES", [wrong])
    assert main(["zoo", "--full", "--contract", "resume"]) == 1
    *_, first, second = [line for line in capsys.readouterr().out.splitlines() if "no known-bad store" not in line]
    assert (first, second) == (
        "resume.takes-any-id names resume.save.load, but does not break it",
        "resume.takes-any-id breaks resume.save.bad-id, but does not name it",
    )


@pytest.mark.parametrize(
    ("results", "lines"),
    [
        ({"x.a.b": "known", "x.a.c": "known"}, ["  caught by x.a.b, x.a.c"]),
        (
            {"x.a.b": "known", "x.a.c": "failed"},
            ["  caught by x.a.b", "  MISSED: x.a.c passed on this known-bad store."],
        ),
        (
            {"x.a.b": "known", "x.a.c": "not seen"},
            ["  caught by x.a.b", "  MISSED: x.a.c passed on this known-bad store."],
        ),
        (
            {"x.a.c": "not measured"},
            [
                "  MISSED: x.a.b did not run on this known-bad store.",
                "  MISSED: x.a.c was not measured on this known-bad store.",
            ],
        ),
    ],
)
def test_only_a_store_that_every_clause_fails_is_caught(results: dict[str, str], lines: list[str]) -> None:
    assert caught(BAD, results).splitlines() == ["x.bad", "  It forgets.", *lines]
    assert is_caught(BAD, results) == (len(lines) == 1)


def test_a_store_that_breaks_nothing_is_not_caught() -> None:
    assert not is_caught(dataclasses.replace(BAD, breaks=()), {})


def test_a_store_without_a_server_did_not_get_away() -> None:
    results = {"x.bad": dict.fromkeys(BAD.breaks, "known"), "x.remote": {"x.a.b": "skipped"}}
    text, is_clean = count([BAD, REMOTE], results)
    assert is_clean
    assert text.splitlines() == [
        "1 of 2 known-bad stores were caught by every clause that should catch them.",
        "1 were not tried: no server. Run pip install 'pytest-wfstate[servers]'.",
    ]
    assert differences([REMOTE], results) == []
    assert not count([BAD], {"x.bad": dict.fromkeys(BAD.breaks, "skipped")})[1]
    assert not count([REMOTE], {"x.remote": {"x.a.b": "failed"}})[1]


def test_the_matrix_has_a_mark_for_each_result() -> None:
    results = {"x.bad": {"x.a.b": "failed", "x.a.c": "passed", "x.a.d": "failed", "x.a.e": "passed"}}
    assert matrix([BAD], CLAUSES, results).splitlines()[-2:] == ["       1234", "x.bad  xo!."]
    results = {"x.bad": {"x.a.b": "not measured", "x.a.d": "not measured", "x.a.e": "not offered"}}
    assert matrix([BAD], CLAUSES, results).splitlines()[-1] == "x.bad  oo?-"


@pytest.mark.parametrize(
    ("results", "lines"),
    [
        (
            {"x.a.b": "failed", "x.a.c": "passed", "x.a.d": "failed", "x.a.e": "not measured"},
            ["x.bad names x.a.c, but does not break it", "x.bad breaks x.a.d, but does not name it"],
        ),
        ({"x.a.b": "failed"}, ["x.bad names x.a.c, but does not break it"]),
    ],
)
def test_differences_are_found_both_ways(results: dict[str, str], lines: list[str]) -> None:
    assert differences([BAD], {"x.bad": results}) == lines


def test_random_calls_may_find_more_than_is_named_and_not_less() -> None:
    clause = Clause("x.random.calls", "safe", "none", "It is.", "test_random_calls")
    results = {"x.bad": {"x.a.b": "failed", "x.a.c": "failed", clause.id: "failed"}}
    assert differences([BAD], results) == []
    assert matrix([BAD], [clause], results).splitlines()[-1] == "x.bad  ~"
    certain = dataclasses.replace(BAD, breaks=(clause.id,))
    assert differences([certain], {"x.bad": {clause.id: "passed"}}) == [
        f"x.bad names {clause.id}, but does not break it"
    ]


def test_a_clause_that_no_store_names_is_found() -> None:
    assert without_store([BAD], CLAUSES) == ["no known-bad store breaks x.a.d", "no known-bad store breaks x.a.e"]
