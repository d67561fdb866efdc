"""Lost connections change no result or are reported, and closing a store closes what it has opened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import (
    LostConnection,
    PausedWorkflow,
    RedisEffectStore,
    RedisPausedStore,
    RedisRunStore,
    Server,
    UnusableDatabase,
    samples,
)
from pytest_wfstate.faults.servers.proxy import Proxy, When
from pytest_wfstate.stores.redis import connecting
from pytest_wfstate.stores.redis.settings import _ASKED
from tests.unit.stores.redis.scripts import Kind, direct, outcomes
from tests.unit.stores.redis.sendings import NOTHING_SENT, Meanwhile, each

each_way = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as one:
        yield one


def clients(server: Server) -> set[int]:
    """Return the ids of all connections of the server, except for the one that asks."""
    with direct(server) as one:
        own = one.client_id()
        return {int(client["id"]) for client in one.client_list()} - {own}


@each
@each_way
def test_one_lost_connection_in_any_call_changes_no_result(
    proxy: Proxy, redis_server: Server, kind: Kind, when: When
) -> None:
    calls, results = kind.calls("a"), []
    with kind.open(redis_server.url) as warm, kind.open(proxy.url, warm._prefix) as store:
        for call in calls:
            proxy.cut(when)
            results += outcomes(store, [call])
        assert proxy.cuts == len(calls)
    assert results == kind.expected("a")


@each
def test_every_message_of_a_new_handle_can_be_lost(proxy: Proxy, redis_server: Server, kind: Kind) -> None:
    """Also those by which it logs in, asks what the server keeps, and brings its script."""
    calls = kind.calls("a")
    _ASKED.clear()
    with direct(redis_server) as server:
        server.script_flush()
        with kind.open(proxy.url) as store:
            start = proxy.messages
            outcomes(store, calls[:1])
            count = proxy.messages - start
        for when in ("before", "after"):
            for nth in range(1, count + 1):
                server.script_flush()
                _ASKED.clear()
                with kind.open(proxy.url) as store:
                    proxy.cut(when, nth)
                    assert outcomes(store, calls[:1]) == kind.expected("a")[:1]
        assert proxy.cuts == 2 * count


@each
def test_an_unreachable_server_is_reported(kind: Kind, redis_server: Server) -> None:
    with kind.open(redis_server.url) as store:
        calls = kind.calls("a")
        outcomes(store, calls)
        redis_server.kill()
        try:
            assert outcomes(store, calls) == [LostConnection] * len(calls)
        finally:
            redis_server.restart()
        assert outcomes(store, kind.calls("b")) == kind.expected("b")


def test_what_was_lost_says_what_to_do(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "lost") as store:
        Meanwhile(store, redis_server.kill)
        try:
            with pytest.raises(
                LostConnection, match=r"at 127\.0\.0\.1:\d+ was lost.*is lost. The.*'\{lost:paused\}:paused'.*Check"
            ):
                store.save(samples.paused("a"))
        finally:
            redis_server.restart()


def test_a_read_that_was_lost_says_what_to_do(proxy: Proxy) -> None:
    with RedisPausedStore(proxy.url, "lost") as store:
        store.list()
        proxy.cut("after", then=lambda: proxy.cut("after", 2))  # the login of the second connection comes between
        with pytest.raises(LostConnection, match=r"The call only reads. Retry"):
            store.load("a")


def test_a_server_that_is_down_says_that_nothing_was_changed(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "down") as store:
        redis_server.kill()
        try:
            for call in (lambda: store.save(samples.paused("a")), store.list):
                with pytest.raises(LostConnection, match=NOTHING_SENT):
                    call()
        finally:
            redis_server.restart()


POOLS = [(redis.ConnectionPool, {}), (redis.BlockingConnectionPool, {"timeout": 0.01})]


@pytest.mark.parametrize(("pool", "options"), POOLS)
def test_a_pool_without_a_free_connection_says_that_nothing_was_changed(
    redis_server: Server, pool: Any, options: dict[str, Any]
) -> None:
    with redis.Redis(connection_pool=pool.from_url(redis_server.url, max_connections=1, **options)) as client:
        store = RedisPausedStore(client, "exhausted")
        store.list()
        with client.client(), pytest.raises(LostConnection, match=NOTHING_SENT):
            store.save(samples.paused("a"))
        assert store.list() == []
        client.connection_pool.disconnect()


def test_more_threads_than_a_pool_has_connections_by_default_use_one_handle(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "many") as store, contextlib.ExitStack() as held:
        for _ in range(101):
            held.enter_context(store._client._redis.client())
        assert store.list() == []


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the URL of a server that accepts connections and never answers, like one whose machine is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("ours", "of_the_url"), [(0.02, ""), (3600.0, "?socket_timeout=0.02")])
def test_a_server_that_does_not_answer_is_given_up(
    silent: str, ours: float, of_the_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connecting.TIMEOUT == 5
    monkeypatch.setattr(connecting, "TIMEOUT", ours)
    with RedisPausedStore(silent + of_the_url) as store, pytest.raises(LostConnection, match="Timeout"):
        store.list()


@each
@each_way
def test_a_client_that_repeats_by_itself_does_no_harm(proxy: Proxy, kind: Kind, when: When) -> None:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    again = Retry(NoBackoff(), 3)
    lost: list[type[Exception]] = [redis.ConnectionError, redis.TimeoutError]
    with redis.Redis.from_url(proxy.url, retry=again, retry_on_error=lost) as client:
        store, calls, results = kind.open(client), kind.calls("a"), []
        outcomes(kind.open(client, store._prefix), [kind.calls("warm")[0]])
        for call in calls:
            proxy.cut(when)
            results += outcomes(store, [call])
    assert results == kind.expected("a")


def test_a_wrong_password_is_not_a_lost_connection(redis_server: Server) -> None:
    url = redis_server.url.replace(redis_server.url.split("@")[0], "redis://:wrong")
    with RedisPausedStore(url) as store, pytest.raises(redis.AuthenticationError):
        store.list()


def test_a_scripts_cache_that_was_flushed_is_filled_again(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "flushed") as store, direct(redis_server) as client:
        store.save(samples.paused("a"))
        client.script_flush()
        store.save(samples.paused("b"))
        assert store.list() == ["a", "b"]


def test_closing_a_store_closes_its_connections(redis_server: Server) -> None:
    before = clients(redis_server)
    store = RedisPausedStore(redis_server.url)
    store.list()
    assert len(clients(redis_server) - before) == 1
    store.close()
    store.close()
    assert clients(redis_server) - before == set()


def test_a_closed_store_can_still_be_used(redis_server: Server) -> None:
    store = RedisPausedStore(redis_server.url, "closed")
    store.close()
    assert store.list() == []
    store.close()


@each
def test_a_store_can_be_closed_twice_and_used_again(redis_server: Server, kind: Kind) -> None:
    results = []
    with kind.open(redis_server.url) as store:
        for call in kind.calls("a"):
            store.close()
            store.close()
            results += outcomes(store, [call])
        store.close()
    assert results == kind.expected("a")


@each
def test_a_store_that_is_closed_while_a_call_waits_for_its_answer_lets_it_finish(
    redis_server: Server, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = clients(redis_server)
    send: Any = redis.Connection.send_packed_command
    results: list[Any] = []
    with kind.open(redis_server.url) as store:

        def closed_meanwhile(*args: Any, **options: Any) -> None:
            send(*args, **options)
            closing = threading.Thread(target=store.close)
            closing.start()
            closing.join()

        for call in kind.calls("a"):
            with monkeypatch.context() as patched:
                patched.setattr(redis.Connection, "send_packed_command", closed_meanwhile)
                results += outcomes(store, [call])
            assert clients(redis_server) - before == set()
    assert results == kind.expected("a")


BUSY = "while true do end"


@pytest.mark.parametrize("changes", [True, False])
def test_a_retry_that_a_busy_server_refuses_is_a_lost_connection(redis_server: Server, changes: bool) -> None:
    """Raw, the error would say that nothing was changed."""
    with contextlib.ExitStack() as stack:
        store: Any = stack.enter_context(RedisPausedStore(redis_server.url, "busy"))
        store.save(samples.paused("a"))
        client = stack.enter_context(direct(redis_server))
        client.config_set("busy-reply-threshold" if is_new(client) else "lua-time-limit", 1)
        script = threading.Thread(target=lambda: run_until_killed(redis_server))

        def keep_busy() -> None:
            script.start()
            while not is_busy(client):
                pass

        send = store._client._send

        def lost_once(command: str, *args: Any, **options: Any) -> Any:
            send(command, *args, **options)
            store._client._send = send
            keep_busy()
            raise redis.ConnectionError("the answer is lost")

        store._client._send = lost_once
        try:
            advice = "The change may or may not have been made" if changes else "The call only reads"
            with pytest.raises(LostConnection, match=rf"the server refused the retry: .*BUSY.*{advice}"):
                store.remove("a") if changes else store.load("a")
        finally:
            client.script_kill()
            script.join()
        assert store.list() == ([] if changes else ["a"])


def is_new(client: Any) -> bool:
    return bool(client.config_get("busy-reply-threshold"))


def is_busy(client: Any) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def run_until_killed(server: Server) -> None:
    with direct(server) as client, pytest.raises(redis.ResponseError, match="killed"):
        client.eval(BUSY, 0)


SECRET = "s3cret"
URLS = [
    f"http://user:{SECRET}@localhost",
    f"redis://user:{SECRET}/{SECRET}@localhost:6379/0",
    f"redis://localhost:{SECRET}",
    f"redis://localhost/0?password={SECRET}&socket_timeout=soon",
    f"redis://localhost/0?password=pass&{SECRET}=1",
    f"redis://:{SECRET}@localhost/0?unknown={SECRET}",
    f"redis://:{SECRET}@localhost/0?protocol=9",
    f"rediss://:{SECRET}@localhost/0?ssl_cert_reqs={SECRET}",
    f"unix://:{SECRET}@/socket?host={SECRET}",
]


@pytest.mark.parametrize("url", [*URLS, *(url.encode() for url in URLS)], ids=repr)
def test_a_url_that_is_refused_is_not_shown(url: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        RedisPausedStore(url)
    shown = traceback.format_exception(refused.value)
    assert SECRET not in "".join(line for line in shown if "test_connections.py" not in line)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_url_that_is_refused_says_what_to_do() -> None:
    with pytest.raises(UnusableDatabase, match=r"cannot be used: it is not a URL of one\. .* Write redis://"):
        RedisPausedStore("http://localhost")
    with pytest.raises(UnusableDatabase, match=r"cannot be used: an option after its \? is unknown .* Write redis://"):
        RedisPausedStore("redis://localhost?unknown=1")


@pytest.mark.parametrize("form", ["redis://:{}@{}", "redis://{1}?password={0}"])
def test_neither_a_store_nor_its_errors_show_the_password(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
    with RedisPausedStore(form.format(SECRET, place)) as store:
        with pytest.raises(LostConnection, match=place) as refused:
            store.save(samples.paused("a"))
        shown = [repr(store), str(vars(store)), *traceback.format_exception(refused.value)]
    assert SECRET not in "".join(shown)


def test_the_client_of_the_user_is_not_closed(redis_server: Server) -> None:
    with direct(redis_server) as client:
        before = clients(redis_server)
        with RedisPausedStore(client) as store:
            store.list()
        assert len(clients(redis_server) - before) == 1


def test_a_store_can_be_closed_in_any_thread(redis_server: Server) -> None:
    before = clients(redis_server)
    store = RedisPausedStore(redis_server.url)
    store.list()
    thread = threading.Thread(target=store.close)
    thread.start()
    thread.join()
    assert clients(redis_server) - before == set()


def test_a_forked_process_shares_no_connection(redis_server: Server) -> None:
    """Both would read each other's answers."""
    with RedisPausedStore(redis_server.url, "forked") as store:
        store.remove("child")
        store.save(samples.paused("parent"))
        before = clients(redis_server)
        child = os.fork()
        if child == 0:
            ok = False
            try:
                for _ in range(200):
                    store.save(samples.paused("child"))
                    ok = store.load("child") == samples.paused("child")
                    store.close()
            finally:
                os._exit(0 if ok else 1)
        ours = {store.load("parent") == samples.paused("parent") for _ in range(400)}
        assert os.waitpid(child, 0)[1] == 0
        assert ours == {True}
        assert before <= clients(redis_server)


def test_a_forked_worker_completes_what_its_parent_has_claimed(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "handed-over") as store:
        store.save(samples.paused("a"))
        store.claim("a")
        child = os.fork()
        if child == 0:
            try:
                store.complete("a")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert store.recover_orphaned() == 0


def test_forked_workers_do_not_free_each_others_claims(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "siblings") as store:
        store.save(samples.paused("a"))
        store.claim("a")
        child = os.fork()
        if child == 0:
            try:
                store.save(samples.paused("a", iterations=2))
                store.claim("a")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        store.complete("a")  # late: the claim is the child's by now
        assert store.recover_orphaned() == 1


def test_an_async_store_serves_one_loop_after_another(redis_server: Server) -> None:
    with RedisEffectStore(redis_server.url, "loops") as store:
        asyncio.run(store.save_checkpoint(samples.checkpoint("a")))
        assert asyncio.run(store.load_checkpoint("a")) == samples.checkpoint("a")


def test_an_async_store_does_not_block_the_loop(redis_server: Server) -> None:
    """A server that is stopped does not answer: what is awaited beside it goes on."""
    assert redis_server._process is not None

    async def work(store: RedisRunStore) -> str:
        with direct(redis_server) as client:
            client.execute_command("CLIENT", "PAUSE", 300, "ALL")
        waiting = asyncio.ensure_future(store.get_run("a"))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        return "went on" if not done and await waiting is None else "was blocked"

    with RedisRunStore(redis_server.url, "blocking") as store:
        assert asyncio.run(work(store)) == "went on"


def test_many_threads_use_one_handle(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url, "threads") as store:
        store.save(samples.paused("a"))
        winners: list[PausedWorkflow] = []

        def work() -> None:
            winners.extend(filter(None, [store.claim("a")]))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert winners == [samples.paused("a")]


def test_a_missing_package_is_named() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from pytest_wfstate import RedisPausedStore, MissingExtra\n"
        "try: RedisPausedStore('redis://localhost')\n"
        "except MissingExtra as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == (
        "Redis stores need the package redis, which is not installed: Python found no package of that name. "
        "Install it with: pip install 'pytest-wfstate[redis]'"
    )


@pytest.mark.parametrize("wrong", [None, 6379, b"redis://localhost"])
def test_what_is_neither_url_nor_client_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"is a \w+, neither a URL nor .* Pass the URL of a server, a redis\.Redis"):
        RedisPausedStore(wrong)


def test_an_async_client_is_refused() -> None:
    from redis.asyncio import Redis

    with pytest.raises(TypeError, match=r"not one of redis\.asyncio"):
        RedisPausedStore(Redis())  # type: ignore[arg-type]
