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
def test_an_argument_is_the_nth_text_that_a_method_returned(nth: int, text: str) -> None:
    call = Call("complete", ("a", ResultOf("token", nth)), ("token",))

    assert given("one", "two").resolve(call) == Call("complete", ("a", text), ("token",))


def test_a_call_without_such_an_argument_is_the_same_object() -> None:
    assert given("one").resolve(TOKEN) is TOKEN


@pytest.mark.parametrize("outcome", [Refused(LookupError), Errored("EIO"), NeverReturned(), Returned(7)], ids=str)
def test_only_text_that_was_returned_counts(outcome: Outcome) -> None:
    results = given("one")
    results.add(TOKEN, outcome)

    assert results.texts("token") == ["one"]


def test_results_of_other_methods_are_not_mixed_up() -> None:
    results = given("one")
    results.add(Call("fork"), Returned("run-2"))

    assert results.resolve(Call("renew", (ResultOf("token"), ResultOf("fork")))).args == ("one", "run-2")
