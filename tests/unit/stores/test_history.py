"""What a history store does, stated on the store in memory: the suite holds every other one to that."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_wfstate import HistoryStore, InvalidId, MemoryHistoryStore
from tests.unit.values import JSON_VALUES, label


@pytest.fixture
def store() -> MemoryHistoryStore:
    return MemoryHistoryStore()


def test_items_are_read_in_the_order_in_which_they_were_appended(store: HistoryStore) -> None:
    store.append("chat-1", ["one", "two"])
    store.append("chat-1", ("three",))

    assert store.read("chat-1") == ["one", "two", "three"]


@pytest.mark.parametrize("value", JSON_VALUES, ids=label)
def test_any_item_is_read_and_popped_as_it_was_appended(store: HistoryStore, value: Any) -> None:
    store.append("chat-1", [value])

    assert repr(store.read("chat-1")) == repr([value])
    assert repr(store.pop("chat-1")) == repr(value)


@pytest.mark.parametrize(("limit", "items"), [(0, []), (1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (9, [1, 2, 3])])
def test_a_limit_gives_the_newest_items_the_oldest_first(store: HistoryStore, limit: int, items: list[int]) -> None:
    store.append("chat-1", [1, 2, 3])

    assert store.read("chat-1", limit) == store.read("chat-1", limit=limit) == items


@pytest.mark.parametrize("limit", [-1, 1.5, "1", True])
def test_a_limit_is_a_whole_number_from_0_up(store: HistoryStore, limit: Any) -> None:
    with pytest.raises(ValueError, match="whole number, at least 0, or None"):
        store.read("chat-1", limit)


def test_pop_takes_the_newest_until_there_is_none(store: HistoryStore) -> None:
    store.append("chat-1", [1, 2])

    assert [store.pop("chat-1") for _ in range(3)] == [2, 1, None]
    assert store.read("chat-1") == []


def test_a_session_that_was_never_written_to_is_empty(store: HistoryStore) -> None:
    assert store.read("never") == []
    assert store.pop("never") is None


def test_clear_removes_all_items_of_a_session_and_may_be_repeated(store: HistoryStore) -> None:
    store.append("chat-1", [1])
    store.append("chat-2", [2])

    store.clear("chat-1")
    store.clear("chat-1")

    assert (store.read("chat-1"), store.read("chat-2")) == ([], [2])


def test_appending_nothing_changes_nothing(store: HistoryStore) -> None:
    store.append("chat-1", [])

    assert store.read("chat-1") == []


@pytest.mark.parametrize(
    "bad", [math.nan, {1: 2}, object(), "\ud800"], ids=["nan", "a number as key", "object", "surrogate"]
)
def test_of_items_one_of_which_cannot_be_stored_none_is(store: HistoryStore, bad: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        store.append("chat-1", ["good", bad])

    assert store.read("chat-1") == []


@pytest.mark.parametrize("items", ["text", {"role": "user"}, None, 1, {1, 2}], ids=repr)
def test_items_are_a_list(store: HistoryStore, items: Any) -> None:
    with pytest.raises(TypeError, match=r"Pass a list, even for one item: \[item\]"):
        store.append("chat-1", items)


def test_changing_what_was_appended_or_read_changes_nothing_in_the_store(store: HistoryStore) -> None:
    items = [{"parts": [1]}]
    store.append("chat-1", items)

    items[0]["parts"].append(2)
    store.read("chat-1")[0]["parts"].append(3)

    assert store.read("chat-1") == [{"parts": [1]}]


def test_what_one_handle_changes_another_sees(store: MemoryHistoryStore) -> None:
    other = store.handle()
    store.append("chat-1", [1, 2])

    assert other.pop("chat-1") == 2
    assert store.read("chat-1") == [1]


def test_every_method_refuses_an_invalid_id(store: HistoryStore) -> None:
    for call in (lambda: store.append("", [1]), lambda: store.read(""), lambda: store.pop(""), lambda: store.clear("")):
        with pytest.raises(InvalidId):
            call()
