"""The proxy in front of a server: what it counts, and what a client and the server see when it cuts."""

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
    with Proxy(redis_server.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Any]:
    with connect(proxy.url) as client:
        client.ping()  # it has logged in
        yield client


def connect(url: str) -> Any:
    """Return a client that does not retry."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))


def direct(server: Server) -> Any:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_calls_reach_the_server_and_answers_the_client(client: Any, redis_server: Server) -> None:
    client.set("a", "1")
    assert client.get("a") == b"1"
    with direct(redis_server) as other:
        assert other.get("a") == "1"


def test_every_call_through_it_is_one_message(proxy: Proxy, client: Any, redis_server: Server) -> None:
    before = proxy.messages
    for _ in range(5):
        client.incr("a")
    with direct(redis_server) as other:
        other.ping()
    assert proxy.messages == before + 5


def test_a_call_of_many_packets_is_one_message(proxy: Proxy, client: Any) -> None:
    before = proxy.messages
    client.set("a", b"x" * 10_000_000)
    assert len(client.get("a")) == 10_000_000
    assert proxy.messages == before + 2


@pytest.mark.parametrize(("when", "kept"), [("before", None), ("after", "1")])
def test_a_cut_falls_before_or_after_the_call_takes_effect(
    proxy: Proxy, client: Any, redis_server: Server, when: When, kept: str | None
) -> None:
    proxy.cut(when)
    with pytest.raises(redis.ConnectionError):
        client.incr("a")
    assert proxy.cuts == 1
    with direct(redis_server) as other:
        assert other.get("a") == kept


@each
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_nth_message_from_now_is_cut_and_no_other(proxy: Proxy, client: Any, when: When, nth: int) -> None:
    client.ping()
    proxy.cut(when, nth)
    answers = []
    for _ in range(4):
        try:
            answers.append(client.incr("a"))
        except redis.ConnectionError:
            answers.append("cut")
    after = [nth + 1 - (when == "before") + more for more in range(4 - nth)]
    assert answers == [*range(1, nth), "cut", *after]
    assert proxy.cuts == 1


@each
def test_a_client_can_reconnect(proxy: Proxy, client: Any, when: When) -> None:
    proxy.cut(when)
    with pytest.raises(redis.ConnectionError):
        client.ping()
    assert client.ping()


@each
def test_other_connections_are_spared(proxy: Proxy, client: Any, when: When) -> None:
    with connect(proxy.url) as other:
        other.ping()
        proxy.cut(when)
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert other.client_id() == other.client_id()
    assert proxy.cuts == 1


def test_a_planned_cut_can_be_cancelled(proxy: Proxy, client: Any) -> None:
    proxy.cut("before")
    assert not proxy.cut_nothing()
    assert client.ping()
    assert proxy.cuts == 0


def test_logging_in_can_be_cut(proxy: Proxy) -> None:
    proxy.cut("before")
    with connect(proxy.url) as new, pytest.raises(redis.ConnectionError):
        new.ping()
    assert proxy.cuts == 1


def test_a_killed_server_is_unreachable_through_the_proxy_too(client: Any, redis_server: Server) -> None:
    redis_server.kill()
    try:
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
    finally:
        redis_server.restart()
    assert client.ping()


def test_a_forked_process_holds_no_connection_open(proxy: Proxy, client: Any) -> None:
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


def test_messages_of_concurrent_clients_are_all_counted(proxy: Proxy) -> None:
    def work() -> None:
        with redis.Redis.from_url(proxy.url) as client:
            for _ in range(50):
                client.incr("a")

    with redis.Redis.from_url(proxy.url) as client:
        start = proxy.messages
        client.ping()
        login = proxy.messages - start - 1
    threads = [threading.Thread(target=work) for _ in range(4)]
    before = proxy.messages
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proxy.messages - before == 4 * (50 + login)


def test_a_closed_proxy_leaves_no_connection_and_no_thread(redis_server: Server) -> None:
    with Proxy(redis_server.url) as proxy:
        client = connect(proxy.url)
        client.ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("wfstate-proxy", "wfstate-link"))]


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
        port = proxy.url.partition("127.0.0.1:")[2].partition("/")[0]
        assert proxy.url == url.replace("example.org:1234", "example.org").replace("example.org", f"127.0.0.1:{port}")


@pytest.mark.parametrize("url", ["unix:///tmp/socket", "unix://me:secret@/tmp/socket?password=secret"])
def test_a_url_without_a_host_is_rejected_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"^'unix:///tmp/socket' names no host, so a proxy cannot") as rejected:
        Proxy(url)
    assert "secret" not in str(rejected.value)


def test_a_postgres_commit_that_was_cut_after_it_is_kept(postgres_server: Server) -> None:
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


def test_a_lost_clients_lock_is_free_even_if_a_forked_process_still_runs(postgres_server: Server) -> None:
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
            direct.execute("SELECT pg_advisory_lock(7)")  # or it times out
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@each
def test_it_names_the_message_that_it_cut(proxy: Proxy, client: Any, when: When) -> None:
    proxy.cut(when)
    with pytest.raises(redis.ConnectionError):
        client.hset("home:claims", "a", "secret")
    assert proxy.cut_message == "HSET home:claims a"


@each
def test_it_names_the_statement_that_it_cut(postgres_server: Server, when: When) -> None:
    with Proxy(postgres_server.url) as proxy, psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.cut(when)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select relname from pg_class where relname = %s", ["secret"])
        assert proxy.cut_message == "SELECT ... FROM pg_class"
