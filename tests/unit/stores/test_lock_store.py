"""What a lock store does, stated on the store in memory: the suite holds every other one to that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate import InvalidId, LockStore, MemoryLockStore
from pytest_wfstate.faults.frozen_clock import FrozenClock


@pytest.fixture
def store() -> MemoryLockStore:
    return MemoryLockStore()


def token_of(store: LockStore, ttl: float = 60) -> int:
    token = store.acquire("deploy", ttl)
    assert token is not None
    return token


def test_a_lock_has_one_holder_until_it_is_released(store: MemoryLockStore) -> None:
    other = store.handle()
    token = token_of(store)

    assert (other.acquire("deploy", 60), store.acquire("deploy", 60)) == (None, None)
    assert other.held("deploy")
    assert other.release("deploy", token)
    assert not store.held("deploy")
    assert other.acquire("deploy", 60) is not None


def test_each_acquisition_has_a_greater_token(store: LockStore) -> None:
    tokens = []
    for _ in range(12):
        tokens.append(token_of(store))
        assert store.release("deploy", tokens[-1])

    assert tokens == sorted(set(tokens))


def test_locks_are_apart(store: LockStore) -> None:
    token = token_of(store)

    assert not store.held("other")
    assert store.acquire("other", 60) is not None
    assert store.release("deploy", token)
    assert store.held("other")


def test_a_lock_is_free_at_the_end_of_its_time(store: LockStore, frozen_clock: FrozenClock) -> None:
    first = token_of(store)
    frozen_clock.tick(59.999)
    assert store.acquire("deploy", 60) is None

    frozen_clock.tick(0.001)

    assert not store.held("deploy")
    assert not store.renew("deploy", first, 60)
    assert not store.release("deploy", first)
    assert token_of(store) > first


def test_a_late_holder_changes_nothing(store: LockStore, frozen_clock: FrozenClock) -> None:
    late = token_of(store)
    frozen_clock.tick(60)
    winner = token_of(store)

    assert not store.release("deploy", late)
    assert not store.renew("deploy", late, 600)
    frozen_clock.tick(59)
    assert store.held("deploy")
    assert store.release("deploy", winner)


@pytest.mark.parametrize(("ttl", "free_after"), [(60, 60), (10, 10), (600, 600)])
def test_a_renewal_counts_from_now(store: LockStore, frozen_clock: FrozenClock, ttl: float, free_after: float) -> None:
    token = token_of(store)
    frozen_clock.tick(30)

    assert store.renew("deploy", token, ttl)

    frozen_clock.tick(free_after - 0.5)
    assert store.held("deploy")
    frozen_clock.tick(0.5)
    assert not store.held("deploy")


@pytest.mark.parametrize("wrong", [0, 2, -1, 1.0, True, "1", None], ids=repr)
def test_a_token_is_that_very_number(store: LockStore, wrong: Any) -> None:
    assert token_of(store) == 1

    assert not store.renew("deploy", wrong, 60)
    assert not store.release("deploy", wrong)
    assert store.held("deploy")


def test_nobody_renews_or_releases_a_lock_that_is_free(store: LockStore) -> None:
    assert not store.renew("deploy", 1, 60)
    assert not store.release("deploy", 1)
    assert not store.held("deploy")


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, 1e10, "60", None, True], ids=repr)
def test_a_time_is_a_positive_number_of_seconds(store: LockStore, ttl: Any) -> None:
    token = token_of(store)
    calls: list[Callable[[], object]] = [
        lambda: store.acquire("other", ttl),
        lambda: store.renew("deploy", token, ttl),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="ttl is"):
            call()

    assert not store.held("other")


def test_every_method_refuses_an_invalid_name(store: LockStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.acquire("", 60),
        lambda: store.renew("", 1, 60),
        lambda: store.release("", 1),
        lambda: store.held(""),
    ]
    for call in calls:
        with pytest.raises(InvalidId):
            call()
