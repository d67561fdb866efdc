"""Stores on a cluster: they run there, and report slots that moved, and nodes that cannot be reached."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.cluster import ClusterNode
from redis.crc import key_slot

from pytest_wfstate import LostConnection, NotDurable, RedisPausedStore, samples
from pytest_wfstate.faults.servers.base import free_port
from pytest_wfstate.faults.servers.redis import RedisServer
from pytest_wfstate.stores.redis import client as client_module
from pytest_wfstate.stores.redis.lua_script import BATCH
from tests.unit.stores.handles import call
from tests.unit.stores.redis.scripts import EFFECTS, Kind, direct, large_checkpoint, outcomes
from tests.unit.stores.redis.sendings import Meanwhile, each

IDS = ["a", "}", "{", "{}", "a{b}c", "%7D", "a:b", "é\n🙂", "x" * 1024]
MAY_BE_MADE = "The change may or may not have been made"


class ClusterServer(RedisServer):
    """A node of a cluster: it refuses a script whose keys would be on two."""

    def __init__(self) -> None:
        super().__init__()
        self._password = "of-the-cluster"
        # It also listens 10,000 ports above, which has to be below those of outgoing connections too.
        while self._port > 22_000 or is_taken(self._port + 10_000):
            self._port = free_port()

    def _prepare(self) -> None:
        super()._prepare()
        with (self._folder / "redis.conf").open("a") as file:
            file.write("cluster-enabled yes\ncluster-announce-ip 127.0.0.1\ncluster-require-full-coverage no\n")


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for_state(*nodes: Any, **expected: int) -> None:
    """Ask the nodes of a cluster until they agree on it: it is up, and has this many nodes, or nodes with slots."""
    wanted = {"cluster_state": "ok"} | {
        {"nodes": "cluster_known_nodes", "size": "cluster_size"}[name]: str(number) for name, number in expected.items()
    }
    # WAIT for a replica that is not there keeps both sides idle, for 20 ms.
    seen = (
        all(wanted.items() <= node.cluster("INFO").items() for node in nodes) or nodes[0].wait(1, 20)
        for _ in range(3_000)
    )
    assert any(seen)


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[ClusterServer, ClusterServer]]:
    """Two nodes of a cluster. The first has all slots."""
    with ClusterServer() as first, ClusterServer() as second, direct(first) as client, direct(second) as other:
        client.execute_command("CLUSTER ADDSLOTS", *range(16384))
        address = urlsplit(second.url)
        client.execute_command("CLUSTER MEET", address.hostname, address.port)
        wait_for_state(client, other, nodes=2, size=1)
        yield first, second


@pytest.fixture(scope="module")
def cluster(nodes: tuple[ClusterServer, ClusterServer]) -> ClusterServer:
    return nodes[0]


@contextlib.contextmanager
def opened(cluster: ClusterServer, **options: Any) -> Iterator[Any]:
    client: Any = redis.RedisCluster.from_url(cluster.url, **options)
    with contextlib.closing(client):
        yield client
        client.disconnect_connection_pools()  # which closing it leaves to the garbage collector


@pytest.fixture(scope="module")
def shared(cluster: ClusterServer) -> Iterator[Any]:
    with opened(cluster) as client:
        yield client


@each
@pytest.mark.parametrize("run_id", IDS)
def test_stores_run_on_a_cluster(shared: Any, kind: Kind, run_id: str) -> None:
    assert outcomes(kind.open(shared), kind.calls(run_id)) == kind.expected(run_id)


def test_large_data_is_read_on_a_cluster(shared: Any) -> None:
    whole = large_checkpoint(BATCH)
    store = EFFECTS.open(shared)
    call(store, "save_checkpoint", whole)
    assert call(store, "load_checkpoint", "a") == whole


def test_the_settings_of_every_cluster_are_checked(cluster: ClusterServer) -> None:
    with direct(cluster) as node:
        node.config_set("appendonly", "no")
        for _ in range(2):
            with opened(cluster) as client:
                with pytest.warns(NotDurable, match="the Redis server keeps nothing on disk"):
                    RedisPausedStore(client).list()
                RedisPausedStore(client).list()
        node.config_set("appendonly", "yes")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_REPLICAS_WAIT", 1)


@pytest.mark.usefixtures("impatient")
def test_a_store_on_a_cluster_waits_for_replicas(shared: Any) -> None:
    """There are none."""
    store = RedisPausedStore(shared, "replicated", wait_replicas=1)
    with pytest.raises(LostConnection, match=r"has made the change .* only 0 of 1 replicas"):
        store.save(samples.paused("a"))
    assert store.list() == ["a"]
    with pytest.raises(LostConnection, match=r"found nothing to change .* only 0 of 1 replicas"):
        store.complete("b")


@pytest.mark.usefixtures("impatient")
def test_a_change_that_waits_for_replicas_follows_a_slot_to_another_node(
    nodes: tuple[ClusterServer, ClusterServer],
) -> None:
    with opened(nodes[0]) as client, direct(nodes[0]) as old, direct(nodes[1]) as new:
        store = RedisPausedStore(client, "moved", wait_replicas=1)
        store.list()
        new_id = new.cluster("MYID")
        for node in (new, old):
            node.execute_command("CLUSTER SETSLOT", key_slot(b"{moved:paused}"), "NODE", new_id)
        wait_for_state(old, new, size=2)
        with pytest.raises(LostConnection, match=r"only 0 of 1 replicas"):
            store.save(samples.paused("a"))
        assert new.hkeys("{moved:paused}:paused") == [b"a"]


@pytest.mark.usefixtures("impatient")
def test_a_change_that_waits_for_replicas_finds_the_node_that_took_over(cluster: ClusterServer) -> None:
    """After a failover the node that the client knows is gone."""
    with opened(cluster) as client:
        store = RedisPausedStore(client, "failover", wait_replicas=1)
        store.list()
        gone: Any = ClusterNode("127.0.0.1", free_port(), "primary")  # type: ignore[no-untyped-call]
        client.nodes_manager.slots_cache[key_slot(b"{failover:paused}")] = [gone]
        with pytest.raises(LostConnection, match=r"only 0 of 1 replicas"):
            store.save(samples.paused("a"))
        assert store.list() == ["a"]


def assert_lost(store: Any, harm: Callable[[], None], heal: Callable[[], None], why: str) -> None:
    """Lose the answer to a change, and then every other call, by some harm to a cluster: each says what to do."""
    store.save(samples.paused("a"))
    Meanwhile(store, harm)
    try:
        with pytest.raises(LostConnection, match=rf"the answer is lost.*{MAY_BE_MADE}"):
            store.remove("a")
        with pytest.raises(LostConnection, match=rf"{why}.*The call only reads"):
            store.load("a")
        with pytest.raises(LostConnection, match=rf"{why}.*{MAY_BE_MADE}"):
            store.save(samples.paused("b"))
    finally:
        heal()
    assert store.list() == []


def test_a_cluster_that_cannot_be_reached_is_a_lost_connection(
    cluster: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise ConnectionRefusedError("refused")

    with opened(cluster) as client:

        def harm() -> None:
            monkeypatch.setattr(redis.Connection, "_connect", refuse)
            client.disconnect_connection_pools()

        assert_lost(RedisPausedStore(client, "unreachable"), harm, monkeypatch.undo, "refused")


@pytest.mark.parametrize("covered", [True, False])
def test_a_slot_that_no_node_serves_is_a_lost_connection(
    nodes: tuple[ClusterServer, ClusterServer], covered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is during a failover."""
    monkeypatch.setattr(time, "sleep", lambda _: None)  # redis-py waits before it retries
    slot = key_slot(b"{uncovered:paused}")
    with opened(nodes[0], require_full_coverage=covered) as client, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(direct(node)) for node in nodes)

        def uncover() -> None:
            for node in (second, first):
                node.execute_command("CLUSTER DELSLOTS", slot)

        def cover() -> None:
            first.execute_command("CLUSTER ADDSLOTS", slot)
            second.execute_command("CLUSTER SETSLOT", slot, "NODE", first.cluster("MYID"))

        assert_lost(RedisPausedStore(client, "uncovered"), uncover, cover, "covered")


ERRORS = [
    redis.exceptions.RedisClusterException("Redis Cluster cannot be connected"),
    redis.exceptions.SlotNotCoveredError("Slot 1 is not covered"),
    redis.exceptions.ClusterDownError("CLUSTERDOWN Hash slot not served"),
    redis.exceptions.ClusterError("TTL exhausted."),
    redis.exceptions.MovedError("1 127.0.0.1:1"),
    redis.exceptions.AskError("1 127.0.0.1:1"),
    redis.exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
    redis.ConnectionError("Too many connections"),
    redis.exceptions.InvalidResponse("Protocol error"),
    AttributeError("'NoneType' object has no attribute 'redis_connection'"),  # a node that it has not heard of
    IndexError("list index out of range"),  # no node has a slot
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_cluster_client_raises_on_a_retry_is_a_lost_connection(shared: Any, error: Exception) -> None:
    """The change was made."""
    store: Any = RedisPausedStore(shared, "raised")
    store.save(samples.paused("a"))
    send = store._client._send

    def fail(*_: Any, **__: Any) -> None:
        raise error

    Meanwhile(store, lambda: setattr(store._client, "_send", fail))
    with pytest.raises(LostConnection, match=rf"the answer is lost.*{MAY_BE_MADE}"):
        store.remove("a")
    store._client._send = send
    assert store.list() == []


@pytest.mark.parametrize("error", [e for e in ERRORS if not isinstance(e, redis.exceptions.InvalidResponse)], ids=repr)
def test_a_cluster_client_that_finds_no_node_has_lost_the_connection(shared: Any, error: Exception) -> None:
    store: Any = RedisPausedStore(shared, "raised")
    store.list()

    def fail(*_: Any, **__: Any) -> None:
        raise error

    store._client._send = store._client._read_once = fail
    with pytest.raises(LostConnection, match="The call only reads"):
        store.load("a")
