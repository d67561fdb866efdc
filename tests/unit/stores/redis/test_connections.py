"""Connections that are lost: what can be repeated is, once, and whatever else came between is not undone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import (
    LostConnection,
    NotFound,
    PausedWorkflow,
    RedisEffectStore,
    RedisPausedStore,
    RedisRunStore,
    Server,
    samples,
)
from pytest_wfstate.faults.proxy import Proxy, When
from pytest_wfstate.stores.redis import _client
from pytest_wfstate.stores.redis._settings import _ASKED
from tests.unit.stores.handles import call as called
from tests.unit.stores.redis.scripts import EFFECTS, KINDS, PAUSED, RESUME, RUNS, Kind, direct, dump, outcomes

each = pytest.mark.parametrize("kind", KINDS, ids=str)
each_way = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as one:
        yield one


def clients(server: Server) -> set[int]:
    """Give the ids of all connections that the server has, but for the one that asks."""
    with direct(server) as one:
        own = one.client_id()
        return {int(client["id"]) for client in one.client_list()} - {own}


@each
@each_way
def test_one_lost_connection_in_any_call_changes_no_result(
    proxy: Proxy, redis_server: Server, kind: Kind, when: When
) -> None:
    calls, came = kind.calls("a"), []
    with kind.open(redis_server.url) as warm, kind.open(proxy.url, warm._prefix) as store:
        for call in calls:
            proxy.cut(when)
            came += outcomes(store, [call])
        assert proxy.cuts == len(calls)
    assert came == kind.expected("a")


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
def test_a_server_that_cannot_be_reached_is_told(kind: Kind, redis_server: Server) -> None:
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
                LostConnection, match=r"at 127\.0\.0\.1:\d+ was lost.*is lost. It.*'\{lost:paused\}:paused'.*look bef"
            ):
                store.save(samples.paused("a"))
        finally:
            redis_server.restart()


def test_a_read_that_was_lost_says_what_to_do(proxy: Proxy) -> None:
    with RedisPausedStore(proxy.url, "lost") as store:
        store.list()
        proxy.cut("after", then=lambda: proxy.cut("after", 2))  # the login of the second connection comes between
        with pytest.raises(LostConnection, match=r"Nothing was to be changed: try again"):
            store.load("a")


NOTHING_SENT = r"no connection to the Redis server at .* could be had: .*[^.]\. It was .* Nothing was sent, so"


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
    """Give the URL of a server that takes connections and never answers, as one whose machine is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("ours", "of_the_url"), [(0.02, ""), (3600.0, "?socket_timeout=0.02")])
def test_a_server_that_does_not_answer_is_given_up(
    silent: str, ours: float, of_the_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _client._TIMEOUT == 5
    monkeypatch.setattr(_client, "_TIMEOUT", ours)
    with RedisPausedStore(silent + of_the_url) as store, pytest.raises(LostConnection, match="Timeout"):
        store.list()


class Meanwhile:
    """Has the answer to the next change get lost, and does something else before the change is sent again."""

    def __init__(self, store: Any, action: Callable[[], Any]) -> None:
        self._client = store._client
        self._send = store._client._send
        self._action: Callable[[], Any] | None = action
        store._client._send = self

    def __call__(self, command: str, *args: Any) -> Any:
        came = self._send(command, *args)
        action = self._action
        if action is None or b":receipt:" not in str(args).encode():
            return came
        self._action = None
        action()
        raise redis.ConnectionError("the answer is lost")


class Late:
    """Holds the first sending of the next change back: the second is made at once, the first when it is let go."""

    def __init__(self, store: Any) -> None:
        self._send = store._client._send
        self._held: tuple[Any, ...] | None = None
        store._client._send = self

    def __call__(self, command: str, *args: Any) -> Any:
        if self._held is None and b":receipt:" in str(args).encode():
            self._held = (command, *args)
            raise redis.ConnectionError("held back on the way")
        return self._send(command, *args)

    def arrive(self) -> None:
        if self._held is not None:  # else the call has changed nothing, by any script
            self._send(*self._held)


@pytest.fixture
def pair(redis_server: Server) -> Iterator[Callable[[Kind], tuple[Any, Any]]]:
    opened = []

    def two(kind: Kind) -> tuple[Any, Any]:
        one = kind.open(redis_server.url)
        opened.extend([one, kind.open(redis_server.url, one._prefix)])
        for store in opened:
            outcomes(store, [kind.calls("warm")[0]])
        return opened[0], opened[1]

    yield two
    for store in opened:
        store.close()


def test_a_save_that_is_sent_again_does_not_pause_what_was_claimed(pair: Any) -> None:
    one, other = pair(PAUSED)
    Meanwhile(one, lambda: other.claim("a"))
    one.save(samples.paused("a"))
    assert one.list() == []


def test_a_claim_that_is_sent_again_has_its_record(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    seen = []
    Meanwhile(one, lambda: seen.append(other.claim("a")))
    assert one.claim("a") == samples.paused("a")
    assert seen == [None]


def test_a_claim_that_is_sent_again_does_not_take_what_was_recovered(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, other.recover_orphaned)
    assert one.claim("a") == samples.paused("a")
    assert one.list() == ["a"]


def test_a_recovery_that_is_sent_again_counts_what_it_did(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    other.claim("a")
    Meanwhile(one, lambda: other.claim("a"))
    assert one.recover_orphaned() == 1
    assert one.list() == []


def test_a_complete_that_is_sent_again_frees_no_new_claim(pair: Any) -> None:
    """It is of a worker that was restarted: one that names no owner."""
    one, other = pair(PAUSED)
    other.save(samples.paused("a"))
    other.claim("a")

    def start_again() -> None:
        other.save(samples.paused("a"))
        other.claim("a")

    Meanwhile(one, start_again)
    one.complete("a")
    assert other.recover_orphaned() == 1


def test_a_remove_that_is_sent_again_removes_nothing_new(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, lambda: other.save(samples.paused("a", iterations=2)))
    one.remove("a")
    assert one.load("a") == samples.paused("a", iterations=2)


def test_a_checkpoint_that_is_sent_again_loses_no_mark(pair: Any) -> None:
    one, other = pair(EFFECTS)
    Meanwhile(one, lambda: called(other, "mark_step_complete", "a", "use-1", samples.effect("use-1")))
    called(one, "save_checkpoint", samples.checkpoint("a"))
    assert called(one, "load_checkpoint", "a").is_completed("use-1")


def test_a_mark_that_is_sent_again_brings_no_task_back(pair: Any) -> None:
    one, other = pair(EFFECTS)
    Meanwhile(one, lambda: called(other, "delete_checkpoint", "a"))
    called(one, "mark_step_complete", "a", "use-1", samples.effect("use-1"))
    assert called(one, "load_checkpoint", "a") is None


def test_a_delete_that_is_sent_again_deletes_nothing_new(pair: Any) -> None:
    one, other = pair(RESUME)
    one.save(samples.resume_point("a", step=1))
    Meanwhile(one, lambda: other.save(samples.resume_point("a", step=2)))
    one.delete("a")
    assert one.load("a") == samples.resume_point("a", step=2)


def test_an_update_that_is_sent_again_does_not_undo_a_later_one(pair: Any) -> None:
    one, other = pair(RUNS)
    called(one, "create_run", samples.run("a"))
    Meanwhile(one, lambda: called(other, "update_context", "a", "later"))
    called(one, "update_context", "a", "first")
    assert called(one, "get_run", "a").context == "later"


@each
def test_a_first_sending_that_arrives_late_changes_nothing(redis_server: Server, kind: Kind) -> None:
    """Whatever the second came to, and whatever others have done since."""
    with direct(redis_server) as client, kind.open(redis_server.url) as store:
        seen = [dump(client, store)]
        for call in kind.calls("a"):
            with kind.open(redis_server.url, store._prefix) as other:
                late = Late(other)
                outcomes(other, [call])
                seen.append(dump(client, store))
                for state in seen:
                    put(client, store, state)
                    before = content(client, store)
                    late.arrive()
                    assert content(client, store) == before, call
                put(client, store, seen[-1])


def put(client: Any, store: Any, state: dict[bytes, bytes]) -> None:
    """Have a store keep what it had when `state` was dumped."""
    client.delete("nothing", *dump(client, store))
    for key, dumped in state.items():
        client.restore(key, 0, dumped)


def content(client: Any, store: Any) -> dict[bytes, Any]:
    """Give all that a store keeps, in Python's types: the order of a large hash is another in each dump."""
    read = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1),
    }
    return {key: read[client.type(key)](key) for key in dump(client, store)}


def test_a_claim_that_came_to_nothing_takes_nothing_later(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was removed after it was read, and is paused again, just as it was, when the first sending arrives."""
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    late, read = Late(one), one._read
    monkeypatch.setattr(one, "_read", lambda run: (read(run), other.remove(run))[0])
    assert one.claim("a") is None
    other.save(samples.paused("a"))
    late.arrive()
    assert other.list() == ["a"]


def test_an_update_that_came_to_nothing_replaces_nothing_later(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was deleted after it was read, and is there again, just as it was, when the first sending arrives."""
    one, other = pair(RUNS)
    called(one, "create_run", samples.run("a"))
    late, read = Late(one), one._read
    monkeypatch.setattr(one, "_read", lambda run: (read(run), called(other, "delete_run", run))[0])
    with pytest.raises(NotFound):
        called(one, "update_context", "a", "late")
    called(other, "create_run", samples.run("a"))
    late.arrive()
    assert called(other, "get_run", "a") == samples.run("a")


def test_a_change_is_not_made_again_when_its_receipt_may_be_gone(
    pair: Any, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stood still for a minute cannot know what has become of what it sent."""
    one, other = pair(PAUSED)

    def a_minute_later() -> None:
        other.claim("a")
        with direct(redis_server) as client:
            client.delete(*client.keys(f"*{one._prefix}*:receipt:*"))
        since = _client._seconds()
        monkeypatch.setattr(_client, "_seconds", lambda: since + 60)

    Meanwhile(one, a_minute_later)
    with pytest.raises(LostConnection, match=r"the answer is lost.* Whether the change was made cannot be told"):
        one.save(samples.paused("a"))
    assert one.list() == []


def test_a_second_sending_is_good_for_what_is_left_of_the_receipt(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "_seconds", lambda: 130.0)
    with RedisPausedStore(redis_server.url, "left") as store, direct(redis_server) as client:
        before, deadline, after = client.time(), store._client._deadline("key", 100.0), client.time()
    receipts = [seconds * 1000 + micro // 1000 + 30_000 for seconds, micro in (before, after)]
    assert receipts[0] - 1_000 <= deadline <= receipts[1] - 1_000


def test_a_claim_whose_answer_is_lost_for_good_is_still_its_own(redis_server: Server, pair: Any) -> None:
    """It may complete what it holds, and frees nobody else's claim, though it never heard that it had one."""
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, redis_server.kill)
    try:
        with pytest.raises(LostConnection):
            one.claim("a")
    finally:
        redis_server.restart()
    assert other.list() == []
    one.complete("a")
    assert other.recover_orphaned() == 0

    other.save(samples.paused("a"))
    other.claim("a")
    one.complete("a")
    assert other.recover_orphaned() == 1


def test_a_claim_that_was_never_sent_does_not_keep_a_restarted_worker_from_finishing_up(
    redis_server: Server, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before = pair(PAUSED)
    one.save(samples.paused("a"))
    read = one._read

    def read_and_lose(run: str) -> Any:
        found = read(run)
        before.claim("a")
        redis_server.kill()
        return found

    monkeypatch.setattr(one, "_read", read_and_lose)
    try:
        with pytest.raises(LostConnection, match=NOTHING_SENT):
            one.claim("a")
    finally:
        redis_server.restart()
    one.complete("a")
    assert one.recover_orphaned() == 0


@each
@each_way
def test_a_client_that_repeats_by_itself_does_no_harm(proxy: Proxy, kind: Kind, when: When) -> None:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    again = Retry(NoBackoff(), 3)
    lost: list[type[Exception]] = [redis.ConnectionError, redis.TimeoutError]
    with redis.Redis.from_url(proxy.url, retry=again, retry_on_error=lost) as client:
        store, calls, came = kind.open(client), kind.calls("a"), []
        outcomes(kind.open(client, store._prefix), [kind.calls("warm")[0]])
        for call in calls:
            proxy.cut(when)
            came += outcomes(store, [call])
    assert came == kind.expected("a")


def test_a_wrong_password_is_no_lost_connection(redis_server: Server) -> None:
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


def test_the_package_is_told_if_it_is_missing() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from pytest_wfstate import RedisPausedStore, MissingExtra\n"
        "try: RedisPausedStore('redis://localhost')\n"
        "except MissingExtra as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.strip() == (
        "this store needs the package redis, which is not installed. It comes with an extra of pytest-wfstate: "
        "pip install 'pytest-wfstate[redis]'"
    )


@pytest.mark.parametrize("wrong", [None, 6379, b"redis://localhost"])
def test_what_is_neither_url_nor_client_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"is of type \w+\. A store is given the URL of a server, or a redis\.Redis"):
        RedisPausedStore(wrong)


def test_an_async_client_is_refused() -> None:
    from redis.asyncio import Redis

    with pytest.raises(TypeError, match=r"which are not of redis\.asyncio"):
        RedisPausedStore(Redis())  # type: ignore[arg-type]
