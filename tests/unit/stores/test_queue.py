"""What a queue store does, stated on the store in memory: the suite holds every other one to that."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_wfstate import InvalidId, MemoryQueueStore, QueueItem, QueueStore, TakenItem
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.values import JSON_VALUES, label


@pytest.fixture
def store() -> MemoryQueueStore:
    return MemoryQueueStore()


def taken(store: QueueStore) -> TakenItem:
    item = store.take()
    assert item is not None
    return item


def waiting(store: QueueStore) -> list[str]:
    return [item.id for item in store.list()]


def test_items_are_taken_in_the_order_in_which_they_were_put(store: QueueStore) -> None:
    for item_id in ("b", "a", "c"):
        store.put(item_id, f"value of {item_id}")

    items = [taken(store) for _ in range(3)]

    assert [(item.id, item.value, item.attempts) for item in items] == [
        ("b", "value of b", 1),
        ("a", "value of a", 1),
        ("c", "value of c", 1),
    ]
    assert store.take() is None


@pytest.mark.parametrize("value", JSON_VALUES, ids=label)
def test_any_value_is_taken_as_it_was_put(store: QueueStore, value: Any) -> None:
    store.put("a", value)

    assert repr(store.list()[0].value) == repr(taken(store).value) == repr(value)


def test_a_value_that_cannot_be_stored_is_refused(store: QueueStore) -> None:
    with pytest.raises(ValueError, match="nan has no JSON equivalent"):
        store.put("a", [math.nan])

    assert store.size() == 0


def test_an_id_that_waits_or_is_taken_is_not_put_again(store: QueueStore) -> None:
    store.put("a", "first")
    store.put("a", "second")
    item = taken(store)
    store.put("a", "third")

    assert item.value == "first"
    assert store.take() is None
    assert store.retry("a", token=item.token)
    assert store.list() == [QueueItem(id="a", value="first", attempts=1)]


def test_an_id_that_is_done_can_be_put_again(store: QueueStore) -> None:
    store.put("a", "first")
    assert store.done("a", token=taken(store).token)

    store.put("a", "second")

    assert store.list() == [QueueItem(id="a", value="second", attempts=0)]


def test_a_taken_item_neither_waits_nor_counts(store: QueueStore) -> None:
    store.put("a", 1)
    store.put("b", 2)
    taken(store)

    assert (waiting(store), store.size()) == (["b"], 1)


def test_items_that_are_put_back_keep_their_places(store: QueueStore) -> None:
    for item_id in "abc":
        store.put(item_id, None)
    first, _ = taken(store), taken(store)

    assert store.retry("a", token=first.token)
    assert waiting(store) == ["a", "c"]
    assert store.recover() == 1
    assert waiting(store) == ["a", "b", "c"]


def test_every_take_counts_and_has_a_new_token(store: QueueStore) -> None:
    store.put("a", None)
    first = taken(store)
    store.retry("a", token=first.token)
    second = taken(store)
    store.recover()
    third = taken(store)

    assert [item.attempts for item in (first, second, third)] == [1, 2, 3]
    assert len({item.token for item in (first, second, third)}) == 3


def test_a_token_that_is_not_that_of_the_latest_take_changes_nothing(store: MemoryQueueStore) -> None:
    store.put("a", None)
    late = taken(store)
    store.recover()

    assert not store.done("a", token=late.token)
    assert waiting(store) == ["a"]

    winner = taken(store.handle())
    assert not store.done("a", token=late.token)
    assert not store.retry("a", token=late.token)
    assert store.size() == 0
    assert store.done("a", token=winner.token)
    assert not store.done("a", token=winner.token)


def test_a_token_is_good_for_its_item_alone(store: QueueStore) -> None:
    store.put("a", None)
    store.put("b", None)
    first, second = taken(store), taken(store)

    assert not store.done("b", token=first.token)
    assert store.done("b", token=second.token)


def test_recovery_leaves_younger_takes_alone(store: QueueStore, frozen_clock: FrozenClock) -> None:
    store.put("a", None)
    store.put("b", None)
    taken(store)
    frozen_clock.tick(50)
    taken(store)
    frozen_clock.tick(10)

    assert store.recover(older_than=60.5) == 0
    assert store.recover(older_than=60) == 1
    assert waiting(store) == ["a"]


@pytest.mark.parametrize("age", [-1, "soon", math.nan, True])
def test_an_age_is_a_number_from_0_up(store: QueueStore, age: Any) -> None:
    with pytest.raises(ValueError, match="older_than"):
        store.recover(older_than=age)


@pytest.mark.parametrize("bad", ["", "nul\0", 17, None], ids=repr)
def test_ids_and_tokens_are_checked(store: QueueStore, bad: Any) -> None:
    store.put("a", None)
    for call in (
        lambda: store.put(bad, None),
        lambda: store.done(bad, "token"),
        lambda: store.retry(bad, "token"),
        lambda: store.done("a", bad),
        lambda: store.retry("a", bad),
    ):
        with pytest.raises(InvalidId):
            call()


def test_changing_a_value_that_was_put_or_listed_changes_nothing_in_the_store(store: QueueStore) -> None:
    value = {"lines": [1]}
    store.put("a", value)

    value["lines"].append(2)
    store.list()[0].value["lines"].append(3)

    assert taken(store).value == {"lines": [1]}
