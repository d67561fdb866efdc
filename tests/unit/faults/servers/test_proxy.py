"""The proxy before a server: what it counts, and what a client and the server see when it cuts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_wfstate import Server
from pytest_wfstate.faults.servers.proxy import Proxy, When

each = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with direct(redis_server) as client:
        client.flushall()
    with Proxy(redis_server.url) as one:
        yield one


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Any]:
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as one:
        one.ping()  # it has logged in
        yield one


def direct(server: Server) -> Any:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_what_a_client_asks_the_server_answers(client: Any, redis_server: Server) -> None:
    client.set("a", "1")
    assert client.get("a") == b"1"
    with direct(redis_server) as other:
        assert other.get("a") == "1"


def test_nothing_went_through_a_proxy_that_nobody_used(proxy: Proxy, redis_server: Server) -> None:
    with direct(redis_server) as other:
        other.ping()
    assert not proxy.is_used


def test_every_call_is_one_message(proxy: Proxy, client: Any) -> None:
    before = proxy.messages
    for _ in range(5):
        client.incr("a")
    assert proxy.is_used
    assert proxy.messages == before + 5


def test_a_call_of_many_packets_is_one_message(proxy: Proxy, client: Any) -> None:
    before = proxy.messages
    client.set("a", b"x" * 10_000_000)
    assert len(client.get("a")) == 10_000_000
    assert proxy.messages == before + 2


def test_what_was_cut_before_never_reached_the_server(proxy: Proxy, client: Any, redis_server: Server) -> None:
    proxy.cut("before")
    with pytest.raises(redis.ConnectionError):
        client.incr("a")
    assert proxy.cuts == 1
    with direct(redis_server) as other:
        assert other.get("a") is None


def test_what_was_cut_after_was_carried_out(proxy: Proxy, client: Any, redis_server: Server) -> None:
    proxy.cut("after")
    with pytest.raises(redis.ConnectionError):
        client.incr("a")
    assert proxy.cuts == 1
    with direct(redis_server) as other:
        assert other.get("a") == "1"


@each
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_nth_message_from_now_is_cut_and_no_other(proxy: Proxy, client: Any, when: When, nth: int) -> None:
    client.ping()
    proxy.cut(when, nth)
    seen = []
    for _ in range(4):
        try:
            seen.append(client.incr("a"))
        except redis.ConnectionError:
            seen.append("cut")
    after = [nth + 1 - (when == "before") + more for more in range(4 - nth)]
    assert seen == [*range(1, nth), "cut", *after]
    assert proxy.cuts == 1


@each
def test_a_client_can_connect_again(proxy: Proxy, client: Any, when: When) -> None:
    proxy.cut(when)
    with pytest.raises(redis.ConnectionError):
        client.ping()
    assert client.ping()


@each
def test_other_connections_are_spared(proxy: Proxy, client: Any, when: When) -> None:
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as other:
        other.ping()
        proxy.cut(when)
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert other.client_id() == other.client_id()
    assert proxy.cuts == 1


def test_what_was_to_be_cut_can_be_forgotten(proxy: Proxy, client: Any) -> None:
    proxy.cut("before")
    proxy.cut_nothing()
    assert client.ping()
    assert proxy.cuts == 0


def test_logging_in_can_be_cut(proxy: Proxy) -> None:
    proxy.cut("before")
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as new, pytest.raises(redis.ConnectionError):
        new.ping()
    assert proxy.cuts == 1


def test_a_server_that_is_gone_is_gone_behind_the_proxy_too(client: Any, redis_server: Server) -> None:
    redis_server.kill()
    try:
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
    finally:
        redis_server.restart()
    assert client.ping()


def test_a_process_that_was_forked_holds_no_connection_open(proxy: Proxy, client: Any) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        proxy.cut("after")
        with pytest.raises(redis.ConnectionError):
            client.ping()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_many_clients_at_once_are_counted_right(proxy: Proxy) -> None:
    def work() -> None:
        with redis.Redis.from_url(proxy.url) as one:
            for _ in range(50):
                one.incr("a")

    with redis.Redis.from_url(proxy.url) as one:
        start = proxy.messages
        one.ping()
        login = proxy.messages - start - 1
    threads = [threading.Thread(target=work) for _ in range(4)]
    before = proxy.messages
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proxy.messages - before == 4 * (50 + login)


def test_a_closed_proxy_has_ended_its_connections_and_threads(redis_server: Server) -> None:
    with Proxy(redis_server.url) as proxy:
        client = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
        client.ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    client.close()
    assert not [one for one in threading.enumerate() if one.name.startswith(("wfstate-proxy", "wfstate-link"))]


@pytest.mark.parametrize(
    ("url", "upstream"),
    [
        ("redis://example.org/3", ("example.org", 6379)),
        ("postgresql://user:pw@example.org/db", ("example.org", 5432)),
        ("postgresql+psycopg://user:pw@example.org:1234/db?a=b", ("example.org", 1234)),
    ],
)
def test_a_url_keeps_all_but_host_and_port(url: str, upstream: tuple[str, int]) -> None:
    with Proxy(url) as proxy:
        assert proxy._upstream == upstream
        place = proxy.url.partition("127.0.0.1:")[2].partition("/")[0]
        assert proxy.url == url.replace("example.org:1234", "example.org").replace("example.org", f"127.0.0.1:{place}")


def test_a_url_without_a_host_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'unix:///tmp/socket' names no host\. A proxy stands before"):
        Proxy("unix:///tmp/socket")


def test_a_commit_of_postgres_that_was_cut_after_is_there(postgres_server: Server) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as direct, Proxy(postgres_server.url) as proxy:
        direct.execute("CREATE TABLE IF NOT EXISTS proxied (a int)")
        direct.execute("TRUNCATE proxied")
        with psycopg.connect(proxy.url, autocommit=True) as client:
            proxy.cut("after")
            with pytest.raises(psycopg.OperationalError):
                client.execute("INSERT INTO proxied VALUES (%s)", [1])
        with psycopg.connect(proxy.url, autocommit=True) as client:
            proxy.cut("before")
            with pytest.raises(psycopg.OperationalError):
                client.execute("INSERT INTO proxied VALUES (%s)", [2])
        assert direct.execute("SELECT a FROM proxied").fetchall() == [(1,)]


def test_a_lock_of_a_lost_client_is_free_though_a_forked_process_lives_on(postgres_server: Server) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as direct, Proxy(postgres_server.url) as proxy:
        client = psycopg.connect(proxy.url, autocommit=True)
        client.execute("SELECT pg_advisory_lock(7)")
        child = os.fork()
        if child == 0:
            signal.pause()
        try:
            proxy.cut("before")
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
            direct.execute("SET statement_timeout = '10s'")
            direct.execute("SELECT pg_advisory_lock(7)")  # or it is canceled
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
