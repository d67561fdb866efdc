"""Claims that fail: a handle keeps the claim that it had, whether or not the new one was made."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import LostConnection, RedisPausedStore, Server, samples
from pytest_wfstate.stores.own_claims import MOST_TOKENS
from tests.unit.stores.redis.scripts import direct

RUN = samples.paused("a")


@pytest.fixture
def prefix() -> str:
    return f"p{uuid.uuid4().hex}"


@pytest.fixture
def store(redis_server: Server, prefix: str) -> Iterator[Any]:
    """A handle that has claimed a run, which has paused again."""
    with RedisPausedStore(redis_server.url, prefix) as store:
        store.save(RUN)
        store.claim("a")
        store.save(RUN)
        yield store


@pytest.fixture
def other(redis_server: Server, prefix: str) -> Iterator[Any]:
    with RedisPausedStore(redis_server.url, prefix) as other:
        yield other


class InterruptedBySignal(BaseException):
    pass


def interrupted(store: Any, *, is_made: bool) -> None:
    """Interrupt the next claim, before or after the server makes it."""
    change: Callable[..., Any] = store._client.change

    def raising(*args: Any) -> Any:
        store._client.change = change
        if is_made:
            change(*args)
        raise InterruptedBySignal

    store._client.change = raising
    with pytest.raises(InterruptedBySignal):
        store.claim("a")


def test_a_claim_that_the_server_refused_leaves_the_handle_its_token(redis_server: Server, store: Any) -> None:
    token = store.token("a")
    with direct(redis_server) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(redis.ResponseError, match="READONLY"):
                store.claim("a")
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    assert store.token("a") == token

    store.complete("a")

    assert not store.renew("a", token)


def test_a_claim_that_was_not_sent_leaves_the_handle_its_token(redis_server: Server, store: Any) -> None:
    token = store.token("a")
    read = store._client.get

    def read_then_killed(*args: Any) -> Any:
        data = read(*args)
        redis_server.kill()
        return data

    store._client.get = read_then_killed
    try:
        with pytest.raises(LostConnection, match="Nothing was changed"):
            store.claim("a")
    finally:
        store._client.get = read
        redis_server.restart()
    assert store._claims.tokens("a") == (token,)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_handle_completes_its_claim_whether_or_not_an_interrupted_one_replaced_it(
    store: Any, other: Any, is_made: bool
) -> None:
    interrupted(store, is_made=is_made)
    token = store.token("a")
    assert other.renew("a", token)

    store.complete("a")

    assert not other.renew("a", token)
    assert other.recover_orphaned() == 0
    assert other.list() == ([] if is_made else ["a"])


def test_a_handle_keeps_its_claim_and_few_tokens_however_many_claims_are_interrupted(store: Any, other: Any) -> None:
    token = store.token("a")
    for _ in range(3 * MOST_TOKENS):
        interrupted(store, is_made=False)
    assert len(store._claims.tokens("a")) == MOST_TOKENS
    assert store.token("a") == token

    interrupted(store, is_made=True)
    assert other.renew("a", store.token("a"))
    store.save(RUN)
    assert store.claim("a") == RUN
    assert store._claims.tokens("a") == (store.token("a"),)


def test_an_interrupted_claim_frees_no_claim_of_another(store: Any, other: Any) -> None:
    interrupted(store, is_made=False)
    other.claim("a")

    store.complete("a")

    assert other.recover_orphaned() == 1


def test_a_claim_that_is_interrupted_when_it_is_noted_is_the_handles_own(store: Any, other: Any) -> None:
    made = store._claims.made

    def raising(*_: Any, **__: Any) -> None:
        store._claims.made = made
        raise InterruptedBySignal

    store._claims.made = raising
    with pytest.raises(InterruptedBySignal):
        store.claim("a")

    store.complete("a")

    assert other.recover_orphaned() == 0
