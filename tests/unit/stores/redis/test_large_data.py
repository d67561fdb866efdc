"""Large data: no call keeps the server from answering others for long, and none fails because of its size."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import CorruptRecord, RedisPausedStore, RedisRunStore, Server, samples
from pytest_wfstate.faults.servers.proxy import Proxy
from pytest_wfstate.faults.servers.redis import RedisServer
from pytest_wfstate.stores.redis.lua_script import BATCH
from tests.unit.stores.handles import call
from tests.unit.stores.redis.scripts import EFFECTS, RUNS, SNAPSHOTS, direct, dump, keys_of, large_checkpoint


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Server]:
    """A server of its own: tests that restart the common one would have it read all this again."""
    with RedisServer() as server:
        yield server


def test_a_large_checkpoint_is_saved_in_batches() -> None:
    """No message has more than a megabyte, so that the server answers others in between."""
    whole = large_checkpoint()
    assert len(whole.to_json()) > 2 * 2**20
    with RedisServer() as server, direct(server) as client, EFFECTS.open(server.url) as store:
        client.config_set("proto-max-bulk-len", 2**20)
        call(store, "save_checkpoint", samples.checkpoint("a"))
        call(store, "save_checkpoint", whole)
        assert call(store, "load_checkpoint", "a") == whole
        home = f"{store._prefix}:effects:{{a}}"
        kept = {home.encode(), f"{home}:log".encode(), f"{home}:done".encode()}
        assert set(dump(client, store)) == kept
        assert {client.pttl(key) for key in kept} == {-1}


@pytest.mark.parametrize("emptied", ["side_effects_log", "completed_tool_ids"])
def test_a_large_checkpoint_replaces_all_of_the_old_one(redis_server: Server, emptied: str) -> None:
    whole = large_checkpoint(9 * BATCH)
    half = whole.model_copy(update={emptied: type(getattr(whole, emptied))()})
    with EFFECTS.open(redis_server.url) as store:
        call(store, "save_checkpoint", whole)
        call(store, "save_checkpoint", half)
        assert call(store, "load_checkpoint", "a") == half


def test_a_large_checkpoint_whose_batches_have_expired_is_sent_again(redis_server: Server) -> None:
    whole = large_checkpoint(9 * BATCH)
    with EFFECTS.open(redis_server.url) as store, direct(redis_server) as client:
        changes = store._change
        expired: list[int] = []

        def change(script: Any, home: str, *parts: str, args: Any) -> Any:
            if len(parts) > 3 and not expired:  # the last script
                expired.append(client.delete(*(home + part for part in parts[3:])))
            return changes(script, home, *parts, args=args)

        store._change = change
        call(store, "save_checkpoint", whole)
        assert expired == [2]
        assert call(store, "load_checkpoint", "a") == whole


def test_a_client_that_dies_between_two_batches_leaves_the_old_checkpoint(redis_server: Server) -> None:
    with EFFECTS.open(redis_server.url) as store, direct(redis_server) as client:
        call(store, "save_checkpoint", samples.checkpoint("a"))
        changes, sent = store._change, itertools.count()

        def change(*args: Any, **options: Any) -> Any:
            if next(sent) == 3:
                raise KeyboardInterrupt
            return changes(*args, **options)

        store._change = change
        with pytest.raises(KeyboardInterrupt):
            call(store, "save_checkpoint", large_checkpoint(9 * BATCH))
        store._change = changes
        assert call(store, "load_checkpoint", "a") == samples.checkpoint("a")
        left = [key for key in keys_of(client, store) if b":staged:" in key and b":receipt:" not in key]
        assert left
        assert all(0 < client.pttl(key) <= 60_000 for key in left)


def test_a_listing_of_snapshots_moves_no_values() -> None:
    with RedisServer() as server, direct(server) as client, SNAPSHOTS.open(server.url) as store:
        for step in range(20):
            call(store, "save", samples.snapshot("a", step, values={"text": "x" * 100_000}))
        before = client.info("stats")["total_net_output_bytes"]
        assert len(call(store, "list", "wf", "a")) == 20
        assert client.info("stats")["total_net_output_bytes"] - before < 100_000


@contextlib.contextmanager
def without_scripts(client: Any) -> Iterator[None]:
    """Check that a block reads in a transaction: Lua takes the server many times as long to copy a long list."""
    client.config_resetstat()
    yield
    stats = client.info("commandstats")
    assert stats["cmdstat_exec"]["calls"] == 1


def clients(url: str) -> list[Any]:
    """Return what a store may be opened with."""
    own = [redis.Redis.from_url(url, protocol=protocol, decode_responses=True) for protocol in (2, 3)]
    return [url, redis.Redis.from_url(url, single_connection_client=True), *own]


@pytest.mark.parametrize("nth", range(4))
def test_a_large_checkpoint_is_loaded_without_a_script(redis_server: Server, nth: int) -> None:
    whole = large_checkpoint(BATCH)
    with EFFECTS.open(clients(redis_server.url)[nth]) as store, direct(redis_server) as client:
        call(store, "save_checkpoint", whole)
        with without_scripts(client):
            assert call(store, "load_checkpoint", "a") == whole


@pytest.mark.parametrize("nth", range(4))
def test_many_steps_are_listed_without_a_script(redis_server: Server, nth: int) -> None:
    with RUNS.open(clients(redis_server.url)[nth]) as store, direct(redis_server) as client:
        steps = [samples.step(f"step-{number}") for number in range(BATCH + 1)]
        home = f"{store._prefix}:runs:{{a}}"
        client.hset(f"{home}:steps", mapping={step.step_id: step.to_json() for step in steps})
        client.rpush(f"{home}:order", *(step.step_id for step in steps))
        with without_scripts(client):
            assert call(store, "list_steps", "a") == steps


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_large_read_is_retried_if_its_connection_is_lost(redis_server: Server, when: Any) -> None:
    whole = large_checkpoint(BATCH)
    with Proxy(redis_server.url) as proxy, EFFECTS.open(proxy.url) as store:
        call(store, "save_checkpoint", whole)
        read = store._client._read_once

        def cut_once(*commands: Any) -> Any:
            store._client._read_once = read
            proxy.cut(when)
            return read(*commands)

        store._client._read_once = cut_once
        assert call(store, "load_checkpoint", "a") == whole


def test_a_large_checkpoint_that_is_deleted_meanwhile_is_none(redis_server: Server) -> None:
    with EFFECTS.open(redis_server.url) as store:
        call(store, "save_checkpoint", large_checkpoint(BATCH))
        read = store._client._read_once

        def too_late(*commands: Any) -> Any:
            call(store, "delete_checkpoint", "a")
            return read(*commands)

        store._client._read_once = too_late
        assert call(store, "load_checkpoint", "a") is None


def test_a_read_that_fails_is_reported_and_its_connection_is_used_again(redis_server: Server) -> None:
    with RedisRunStore(redis_server.url, "wrong") as store, direct(redis_server) as client:
        client.set("wrong", "text")
        with pytest.raises(CorruptRecord, match="WRONGTYPE"):
            store._client.read_at_once(["LLEN", "wrong"], ["GET", "wrong"])
        with pytest.raises(redis.ResponseError, match="unknown command"):
            store._client.read_at_once(["GET", "wrong"], ["NONSENSE", "wrong"])
        assert store._client.read_at_once(["GET", "wrong"]) == [b"text"]


def test_many_runs_are_recovered_in_batches(redis_server: Server) -> None:
    """Each is atomic, so a run that is completed between two of them stays completed."""
    number = 2 * BATCH + 1
    with direct(redis_server) as client:
        store: Any = RedisPausedStore(redis_server.url, "many")
        runs = [f"run-{n:05}" for n in range(number)]
        records = {run: samples.paused(run).to_json() for run in runs}
        client.hset("{many:paused}:inflight", mapping=records)
        client.hset("{many:paused}:claims", mapping={run: f"token {n}" for n, run in enumerate(runs)})
        change, sizes = store._change, []

        def counted(script: Any, home: str, *parts: str, args: Any) -> Any:
            sizes.append(len(args) - 2)
            if len(sizes) == 2:
                client.hdel("{many:paused}:inflight", args[2])
            return change(script, home, *parts, args=args)

        store._change = counted
        assert store.recover_orphaned(older_than=10**9) == number - 1
        assert sizes == [0, BATCH, BATCH, 1]
        assert len(store.list()) == number - 1
        assert client.exists("{many:paused}:inflight") == 0
        assert store.claim(store.list()[0]) is not None
        store.close()
