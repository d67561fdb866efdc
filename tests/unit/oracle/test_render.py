"""How results and their differences are shown."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pytest_wfstate.oracle.history import Entry, Returned
from pytest_wfstate.oracle.model import ReferenceModel
from pytest_wfstate.oracle.render import differences, expectation, few, later_in_words, outcome_in_words
from pytest_wfstate.specs import RESUME


@dataclasses.dataclass
class Row:
    key: Any
    tags: Any = None


class One:
    """Looks like the number."""

    def __repr__(self) -> str:
        return "1"


@pytest.mark.parametrize(
    ("expected", "seen", "text"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "a.1 is 3, not 2"),
        ({"a": "x"}, {"a": None}, 'a is null, not "x"'),
        ({"a": 1}, {"a": True}, "a is true, not 1"),
        ({"a": 1}, {}, "a is missing"),
        ({}, {"a": 1}, "a is new"),
        ([1, 2], [1], "it is [1], not [1, 2]"),
        ([Row(1)], [Row(2)], "0.key is 2, not 1"),
        (Row(1, {"x"}), Row(1, {"y"}), "tags is {'y'}, not {'x'}"),
        ({"a": 1}, {"a": One()}, "a is 1 (One), not 1 (int)"),
        ({1: "a"}, {1: "b"}, '1 is "b", not "a"'),
    ],
)
def test_a_difference_names_its_place(expected: Any, seen: Any, text: str) -> None:
    assert list(differences(expected, seen)) == [text]


def test_every_field_that_differs_is_named() -> None:
    expected, seen = {"a": 1, "b": {"c": [1, 2], "d": 0}, "e": 1}, {"a": 2, "b": {"c": [1, 3]}, "e": 1, "f": 1}
    assert list(differences(expected, seen)) == ["a is 2, not 1", "b.c.1 is 3, not 2", "b.d is missing", "f is new"]


def test_two_long_lists_differ_in_their_lengths_and_an_item() -> None:
    expected = [f"record-{number}" for number in range(1000)]
    assert list(differences(expected, expected[:100])) == ["it has 100 items, not 1,000: item 100 is missing"]
    (text,) = differences(expected, expected[1:])
    assert text == 'it has 999 items, not 1,000: item 0 is "record-1", not "record-0"'


@pytest.mark.parametrize("middle", ["x", "\u2028", " ", "e\u0301"])
def test_two_long_texts_are_never_elided_to_the_same(middle: str) -> None:
    expected, seen = {"a": "-" * 500 + middle + "-" * 500}, {"a": "-" * 500 + "y" * len(middle) + "-" * 500}
    (text,) = differences(expected, seen)
    mine, _, other = text.removeprefix("a is ").partition(", not ")
    assert mine.rpartition(",")[0] != other
    assert ascii(middle)[1:-1] in other
    assert "at character 501" in text


def test_two_long_results_that_are_elided_to_the_same_are_told_apart() -> None:
    expected, seen = ("-" * 500 + letter + "-" * 500 for letter in "xy")
    entry = Entry("store", "load", ("a",), 0, 0, Returned(seen))
    lines = expectation([Returned(expected)], entry, ReferenceModel(RESUME))
    assert "y" in lines[1].partition(", not ")[0]


def test_of_many_calls_the_first_and_the_last_are_shown() -> None:
    lines = [f"call {number}" for number in range(1000)]
    shown = few(lines)
    assert (shown[0], shown[-1], len(shown)) == ("call 0", "call 999", 21)
    assert "-- 980 more calls --" in shown
    assert few(lines[:21]) == lines[:21]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None}, '{"a": null}'),
        ({"a": {1}}, "{'a': {1}}"),
        ({(1, 2): "a"}, "{(1, 2): 'a'}"),
        ([b"a"], "[b'a']"),
        ("a", "'a'"),
    ],
)
def test_a_result_is_shown_as_json_if_it_has_any(value: Any, text: str) -> None:
    assert outcome_in_words(Returned(value)) == text


@pytest.mark.parametrize(("seconds", "text"), [(60, "-- 60 s later --"), (0.1, "-- 0.1 s later --")])
def test_time_that_passes_is_shown(seconds: float, text: str) -> None:
    assert later_in_words(seconds) == text
