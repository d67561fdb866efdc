"""How results and their differences are shown."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pytest_wfstate.oracle.history import Returned
from pytest_wfstate.oracle.render import difference, later_in_words, outcome_in_words


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
def test_a_difference_names_the_first_place(expected: Any, seen: Any, text: str) -> None:
    assert difference(expected, seen) == text


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
