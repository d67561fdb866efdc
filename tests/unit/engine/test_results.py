"""Calls that take what an earlier call returned."""

from __future__ import annotations

import pytest

from pytest_wfstate.contracts.base import Call, ResultOf
from pytest_wfstate.engine.results import NOTHING, Results
from pytest_wfstate.oracle.history import Errored, NeverReturned, Outcome, Refused, Returned

TOKEN = Call("token", ("a",))


def given(*texts: str) -> Results:
    return Results((TOKEN, Returned(text)) for text in texts)


@pytest.mark.parametrize(
    ("nth", "text"), [(0, "one"), (1, "two"), (2, NOTHING), (-1, "two"), (-2, "one"), (-3, NOTHING)]
)
def test_an_argument_is_the_nth_token_that_a_method_returned(nth: int, text: str) -> None:
    call = Call("complete", ("a", ResultOf("token", nth)), ("token",))

    assert given("one", "two").resolve(call) == Call("complete", ("a", text), ("token",))


def test_a_call_without_such_an_argument_is_the_same_object() -> None:
    assert given("one").resolve(TOKEN) is TOKEN


@pytest.mark.parametrize(
    "outcome",
    [Refused(LookupError), Errored("EIO"), NeverReturned(), *map(Returned, (None, True, 1.5, ["two"], {"id": "two"}))],
    ids=str,
)
def test_nothing_else_counts(outcome: Outcome) -> None:
    results = given("one")
    results.add(TOKEN, outcome)

    assert results.tokens("token") == ["one"]


def test_numbers_and_the_tokens_of_records_count() -> None:
    results = given("one")
    results.add(TOKEN, Returned(7))
    results.add(TOKEN, Returned({"id": "a", "token": "two"}))

    assert results.tokens("token") == ["one", 7, "two"]


def test_results_of_other_methods_are_not_mixed_up() -> None:
    results = given("one")
    results.add(Call("fork"), Returned("run-2"))

    assert results.resolve(Call("renew", (ResultOf("token"), ResultOf("fork")))).args == ("one", "run-2")


def test_a_token_may_be_that_of_a_call_about_one_id() -> None:
    acquired = [("b", 1), ("a", 2), ("b", 3)]
    results = Results((Call("acquire", (name, 60)), Returned(token)) for name, token in acquired)
    of_a, of_c = (Call("release", (name, ResultOf("acquire", of=(name,)))) for name in "ac")
    assert results.resolve(of_a).args == ("a", 2)
    assert results.resolve(of_c).args == ("c", NOTHING)
