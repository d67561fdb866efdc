"""Exceptions that a signal raises: no reply goes to another call, and no connection stays in use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import RedisPausedStore, Server, samples
from tests.unit.stores.redis.scripts import direct


@contextlib.contextmanager
def interrupted_before_the_reply() -> Iterator[None]:
    """Raise when a reply is about to be read, as a signal handler could."""

    def handler(frame: Any, _event: str, _: Any) -> Any:
        if frame.f_code.co_name == "parse_response" and frame.f_code.co_filename == redis.client.__file__:
            sys.settrace(None)
            raise KeyboardInterrupt
        return handler

    before = sys.gettrace()
    sys.settrace(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sys.settrace(before)


def test_a_call_that_a_signal_interrupts_closes_its_connection_before_another_thread_can_have_it(
    redis_server: Server,
) -> None:
    with RedisPausedStore(redis_server.url, "interrupted") as store:
        store.list()
        pool = store._client._redis.connection_pool
        release, released = pool.release, []

        def noting(connection: Any) -> None:
            released.append(connection._sock is None)
            release(connection)

        pool.release = noting
        with interrupted_before_the_reply():
            store.list()
        assert released == [True]
        assert store.list() == []


def test_a_call_that_a_signal_interrupts_leaves_its_answer_to_no_other(redis_server: Server) -> None:
    """The reply arrives late."""
    with RedisPausedStore(redis_server.url) as store, direct(redis_server) as slow:
        for run_id in ("a", "b"):
            store.save(samples.paused(run_id))
            store.claim(run_id)
        token = store.token("a")
        assert store.renew("a", token)
        slow.execute_command("CLIENT", "PAUSE", 200, "ALL")
        with interrupted_before_the_reply():
            store.renew("a", token)

        assert store.complete("b", token="wrong") is False
        assert store.complete("a", token=token) is True
        assert store.list() == []


def taken(pool: Any) -> Callable[..., Any]:
    """Interrupt a call that has just got a connection."""
    get = pool.get_connection

    def get_connection(*args: Any) -> Any:
        get(*args)
        raise KeyboardInterrupt

    return get_connection


def kept(_: Any) -> Callable[..., Any]:
    """Interrupt a call that is about to give its connection back."""

    def release(_: Any) -> None:
        raise KeyboardInterrupt

    return release


@pytest.mark.parametrize(("method", "interrupt"), [("get_connection", taken), ("release", kept)])
@pytest.mark.parametrize("wait_replicas", [0, 1])
def test_a_call_that_a_signal_interrupts_leaves_no_connection_in_use(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch, method: str, interrupt: Any, wait_replicas: int
) -> None:
    url = f"{redis_server.url}?max_connections=1"
    with RedisPausedStore(url, "leaks", wait_replicas=wait_replicas) as store, direct(redis_server) as client:
        store.list()
        before = len(client.client_list())
        pool = store._client._redis.connection_pool
        monkeypatch.setattr(pool, method, interrupt(pool))
        with pytest.raises(KeyboardInterrupt):
            store.save(samples.paused("a"))
        monkeypatch.undo()

        assert store.list() in ([], ["a"])
        assert len(client.client_list()) == before
