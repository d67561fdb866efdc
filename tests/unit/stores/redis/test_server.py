"""What a Redis server does with the stores' keys: it keeps them, lists them, and places them on a cluster."""

from __future__ import annotations

import contextlib
import itertools
import socket
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.sentinel import Sentinel

from pytest_wfstate import (
    CorruptRecord,
    LostConnection,
    NotDurable,
    RedisPausedStore,
    RedisRunStore,
    Server,
    WorkflowCheckpoint,
    samples,
)
from pytest_wfstate.faults.servers.base import free_port
from pytest_wfstate.faults.servers.redis import RedisServer
from pytest_wfstate.stores.redis import client as client_module
from pytest_wfstate.stores.redis.keys import tagged
from tests.unit.stores.handles import call, outcome
from tests.unit.stores.redis.scripts import (
    EFFECTS,
    KINDS,
    PAUSED,
    RESUME,
    RUNS,
    SNAPSHOTS,
    Kind,
    direct,
    dump,
    keys_of,
    outcomes,
)

each = pytest.mark.parametrize("kind", KINDS, ids=str)
IDS = ["a", "}", "{", "{}", "a{b}c", "%7D", "a:b", "é\n🙂", "x" * 1024]


class ClusterServer(RedisServer):
    """A cluster of one node: it refuses a script whose keys would be on two."""

    def __init__(self) -> None:
        super().__init__()
        # It also listens 10,000 ports above, which has to be below those of outgoing connections too.
        while self._port > 22_000 or is_taken(self._port + 10_000):
            self._port = free_port()

    def _prepare(self) -> None:
        super()._prepare()
        with (self._folder / "redis.conf").open("a") as file:
            file.write("cluster-enabled yes\ncluster-announce-ip 127.0.0.1\n")

    def take_all_slots(self) -> None:
        with direct(self) as client:
            client.execute_command("CLUSTER ADDSLOTS", *range(16384))
            states = (client.cluster("INFO")["cluster_state"] for _ in range(100_000))
            assert "ok" in states


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    with ClusterServer() as server:
        server.take_all_slots()
        yield server


@each
@pytest.mark.parametrize("run_id", IDS)
def test_stores_run_on_a_cluster(cluster: Server, kind: Kind, run_id: str) -> None:
    opened: Any = redis.RedisCluster.from_url(cluster.url)
    with contextlib.closing(opened) as client:
        assert outcomes(kind.open(client), kind.calls(run_id)) == kind.expected(run_id)
        client.disconnect_connection_pools()  # which closing it leaves to the garbage collector


def wait_for_state(*nodes: Any, **expected: int) -> None:
    """Ask the nodes of a cluster until they agree on it: it is up, and has this many nodes, or nodes with slots."""
    wanted = {"cluster_state": "ok"} | {
        {"nodes": "cluster_known_nodes", "size": "cluster_size"}[name]: str(number) for name, number in expected.items()
    }
    seen = (all(wanted.items() <= node.cluster("INFO").items() for node in nodes) for _ in range(1_000_000))
    assert any(seen)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_REPLICAS_WAIT", 1)


@pytest.mark.usefixtures("impatient")
def test_a_store_on_a_cluster_waits_for_replicas(cluster: Server) -> None:
    """There are none."""
    opened: Any = redis.RedisCluster.from_url(cluster.url)
    with contextlib.closing(opened) as client:
        store = RedisPausedStore(client, "replicated", wait_replicas=1)
        with pytest.raises(LostConnection, match=r"has made the change .* only 0 of 1 replicas"):
            store.save(samples.paused("a"))
        assert store.list() == ["a"]
        client.disconnect_connection_pools()


@pytest.mark.usefixtures("impatient")
def test_a_change_that_waits_for_replicas_follows_a_slot_to_another_node() -> None:
    with ClusterServer() as old, ClusterServer() as new, direct(old) as client, direct(new) as other:
        old.take_all_slots()
        address = urlsplit(old.url)
        other.config_set("requirepass", address.password)  # a cluster has one
        other.execute_command("CLUSTER MEET", address.hostname, address.port)
        wait_for_state(client, other, nodes=2)
        store = RedisPausedStore(redis.RedisCluster.from_url(old.url), "moved", wait_replicas=1)
        store.list()
        new_id = other.cluster("MYID")
        for node in (other, client):
            node.execute_command("CLUSTER SETSLOT", key_slot(b"{moved:paused}"), "NODE", new_id)
        wait_for_state(client, other, size=2)
        with pytest.raises(LostConnection, match=r"only 0 of 1 replicas"):
            store.save(samples.paused("a"))
        assert other.hkeys("{moved:paused}:paused") == [b"a"]
        store._client._redis.disconnect_connection_pools()


def slots(client: Any, store: Any) -> set[int]:
    """Return the slots of a store's keys, including receipts; forked runs have their own."""
    return {key_slot(key) for key in keys_of(client, store)}


@each
def test_all_keys_of_a_run_share_a_slot(redis_server: Server, kind: Kind) -> None:
    with kind.open(redis_server.url) as store, direct(redis_server) as client:
        outcomes(store, kind.calls("a")[:-5])
        assert len(slots(client, store)) == 1


@each
def test_runs_are_on_different_nodes_but_for_those_that_are_paused(redis_server: Server, kind: Kind) -> None:
    with kind.open(redis_server.url) as store, direct(redis_server) as client:
        for run_id in ("a", "b"):
            outcomes(store, kind.calls(run_id)[:-5])
        assert len(slots(client, store)) == (1 if kind is PAUSED else 2)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=2), st.data())
def test_ids_never_share_a_tag(ids: list[str], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.text("{}%:7BDab"), min_size=len(ids), max_size=len(ids)))
    assert (tagged(*ids) == tagged(*others)) is (ids == others)


@given(st.lists(st.text("{}%:7BDab", min_size=1), min_size=1, max_size=2))
def test_a_cluster_finds_the_tag_of_a_key(ids: list[str]) -> None:
    key = f"p:effects:{tagged(*ids)}".encode()
    assert key_slot(key) == key_slot(key + b":log") == key_slot(tagged(*ids)[1:-1].encode())


@pytest.mark.parametrize("prefix", ["{app}", "a}b", "{", None, 7, b"bytes"])
def test_a_prefix_with_braces_is_refused(redis_server: Server, prefix: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a valid prefix. .* Use text without braces"):
        RedisPausedStore(redis_server.url, prefix)


@each
def test_stores_with_different_prefixes_share_nothing(redis_server: Server, kind: Kind) -> None:
    with kind.open(redis_server.url) as first, kind.open(redis_server.url) as other:
        outcomes(first, kind.calls("a")[:-5])
        assert outcomes(other, kind.calls("a")) == kind.expected("a")


def test_the_five_contracts_share_a_prefix_without_harm() -> None:
    with RedisServer() as server:
        results = [outcomes(kind.open(server.url, "all"), kind.calls("a")) for kind in KINDS]
    assert results == [kind.expected("a") for kind in KINDS]


def test_no_call_walks_through_the_keys() -> None:
    with RedisServer() as server, direct(server) as client:
        for kind in KINDS:
            with kind.open(server.url) as store:
                outcomes(store, kind.calls("a"))
        used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert "evalsha" in used
    assert not used & {"keys", "scan", "hscan", "sscan", "zscan", "randomkey"}


@pytest.mark.parametrize("kind", [EFFECTS, PAUSED, RESUME, RUNS], ids=str)  # no call deletes snapshots
def test_nothing_is_left_when_all_was_deleted(kind: Kind) -> None:
    with RedisServer() as server, kind.open(server.url) as store, direct(server) as client:
        outcomes(store, kind.calls("a"))
        keys = keys_of(client, store)
        assert [key for key in keys if b":receipt:" not in key] == []
        assert all(0 < client.pttl(key) <= 60_000 for key in keys)


@each
@pytest.mark.parametrize(
    "options",
    [{"decode_responses": True}, {"protocol": 3}, {"encoding": "latin-1"}, {"single_connection_client": True}],
    ids=str,
)
def test_the_users_client_may_have_any_options(redis_server: Server, kind: Kind, options: dict[str, Any]) -> None:
    with redis.Redis.from_url(redis_server.url, **options) as client:
        assert outcomes(kind.open(client), kind.calls("é🙂")) == kind.expected("é🙂")


@each
def test_every_acknowledged_call_survives_a_kill_of_the_server(redis_server: Server, kind: Kind) -> None:
    calls, memory = kind.calls("a"), kind.memory()
    with kind.open(redis_server.url) as store:
        results = []
        for call_ in calls:
            redis_server.kill()
            redis_server.restart()
            results += outcomes(store, [call_])
    assert results == outcomes(memory, calls)


KEEPS_NOTHING = r"at 127.* keeps nothing on disk.* Its setting .* Set appendonly to 'yes'"


@pytest.mark.parametrize("redis_server", ["volatile"], indirect=True)
def test_a_server_that_keeps_nothing_on_disk_causes_one_warning(redis_server: Server) -> None:
    with RedisPausedStore(redis_server.url) as store:
        with pytest.warns(NotDurable, match=KEEPS_NOTHING):
            store.list()
        store.list()


def test_a_server_that_was_down_at_first_causes_a_warning_when_it_is_up() -> None:
    with RedisServer("volatile") as server, RedisPausedStore(server.url) as store:
        server.kill()
        with pytest.raises(LostConnection):
            store.list()
        server.restart()
        with pytest.warns(NotDurable, match=KEEPS_NOTHING):
            store.list()
        store.list()


def test_a_warning_points_at_the_line_that_called_a_store() -> None:
    with RedisServer("volatile") as server, RedisPausedStore(server.url) as store, pytest.warns(NotDurable) as seen:
        store.save(samples.paused("a"))
    assert [warning.filename for warning in seen] == [__file__]


def test_the_settings_of_every_cluster_are_checked(cluster: Server) -> None:
    with direct(cluster) as node:
        node.config_set("appendonly", "no")
        for _ in range(2):
            opened: Any = redis.RedisCluster.from_url(cluster.url)
            with contextlib.closing(opened) as client:
                with pytest.warns(NotDurable, match="the Redis server keeps nothing on disk"):
                    RedisPausedStore(client).list()
                RedisPausedStore(client).list()
                client.disconnect_connection_pools()
        node.config_set("appendonly", "yes")


class KnownMaster(Sentinel):
    """Sentinel without its servers: the master is given."""

    def __init__(self, server: Server) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.url = urlsplit(server.url)

    def discover_master(self, service_name: str) -> tuple[str, int]:  # noqa: ARG002
        assert self.url.hostname
        assert self.url.port
        return self.url.hostname, self.url.port

    def client(self) -> Any:
        return self.master_for("a", password=self.url.password)  # type: ignore[no-untyped-call]


def test_the_settings_of_every_sentinel_master_are_checked(redis_server: Server) -> None:
    with RedisServer("volatile") as volatile:
        kept, lost = (KnownMaster(server) for server in (redis_server, volatile))
        with kept.client() as client:
            RedisPausedStore(client).list()
        with lost.client() as client:
            with pytest.warns(NotDurable, match="the Redis server keeps nothing on disk"):
                RedisPausedStore(client).list()
            RedisPausedStore(client).list()


EVICTIONS = [("allkeys-lru", "records that this store has acknowledged"), ("volatile-ttl", "without its receipts")]


@pytest.mark.parametrize(("policy", "what"), EVICTIONS)
@pytest.mark.parametrize("rights", ["+@all", "+@all -config"])
def test_a_server_that_evicts_keys_causes_one_warning(policy: str, what: str, rights: str) -> None:
    """Even a managed one, which refuses CONFIG."""
    with RedisServer() as server, direct(server) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", policy)
        client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", *rights.split())
        with RedisPausedStore(f"redis://worker:secret@{server.url.partition('@')[2]}") as store:
            expected = f"evicts keys .*: {what}.* maxmemory is 104857600 .* '{policy}'. Set .* to 'noeviction'"
            with pytest.warns(NotDurable, match=expected):
                store.list()
            store.list()


@pytest.mark.parametrize(("limit", "policy"), [("0", "allkeys-lru"), ("100mb", "noeviction")])
def test_a_server_that_evicts_nothing_causes_no_warning(limit: str, policy: str) -> None:
    with RedisServer() as server, direct(server) as client, RedisPausedStore(server.url) as store:
        client.config_set("maxmemory", limit)
        client.config_set("maxmemory-policy", policy)
        store.list()


@pytest.mark.parametrize("redis_server", ["volatile"], indirect=True)
def test_what_is_not_on_disk_is_lost_when_the_server_is_killed(redis_server: Server) -> None:
    with warnings.catch_warnings(), RedisPausedStore(redis_server.url) as store:
        warnings.simplefilter("ignore", NotDurable)
        store.save(samples.paused("a"))
        redis_server.kill()
        redis_server.restart()
        assert store.list() == []


def test_a_server_that_writes_each_change_to_disk_causes_no_warning() -> None:
    with RedisServer("volatile") as server, direct(server) as client, RedisPausedStore(server.url) as store:
        client.config_set("appendonly", "yes")
        store.list()


def test_a_server_that_keeps_only_snapshots_on_disk_causes_one_warning() -> None:
    with RedisServer("volatile") as server, direct(server) as client, RedisPausedStore(server.url) as store:
        client.config_set("save", "3600 1")
        expected = (
            r"keeps only snapshots on disk.* everything since the last one.* save is '3600 1'\. Set appendonly to"
        )
        with pytest.warns(NotDurable, match=expected):
            store.list()
        store.list()


def test_a_server_that_hides_its_settings_is_trusted() -> None:
    with RedisServer("volatile") as server, direct(server) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-config", "-info")
        place = server.url.partition("@")[2]
        with RedisPausedStore(f"redis://worker:secret@{place}") as store:
            assert store.list() == []


DAMAGE = [b"", b"{", b'"text"', b"[]", b"\xff\xfe", b"{}"]
RECORDS: list[tuple[Kind, str, str | None, tuple[Any, ...], tuple[Any, ...]]] = [
    (EFFECTS, ":effects:{a}", "checkpoint", ("save_checkpoint", samples.checkpoint("a")), ("load_checkpoint", "a")),
    (RESUME, ":resume:{a}", None, ("save", samples.resume_point("a")), ("load", "a")),
    (RUNS, ":runs:{a}", None, ("create_run", samples.run("a")), ("get_run", "a")),
    (RUNS, ":runs:{a}:steps", "b", ("upsert_step", "a", samples.step("b")), ("get_step", "a", "b")),
    (SNAPSHOTS, ":snapshots:{wf:a}", f"{2:020}", ("save", samples.snapshot("a", 2)), ("latest", "wf", "a")),
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("kind", "key", "field", "save", "load"), RECORDS, ids=lambda value: str(value)[:24])
def test_a_damaged_record_is_reported_with_its_key_and_healed_by_saving(
    redis_server: Server,
    damage: bytes,
    kind: Kind,
    key: str,
    field: str | None,
    save: tuple[Any, ...],
    load: tuple[Any, ...],
) -> None:
    with kind.open(redis_server.url) as store, direct(redis_server) as client:
        whole = outcome(store, *save), outcome(store, *load)
        if field is None:
            client.set(store._prefix + key, damage)
        else:
            client.hset(store._prefix + key, field, damage)
        with pytest.raises(CorruptRecord) as caught:
            call(store, *load)
        assert store._prefix + key in caught.value.where
        assert (outcome(store, *save), outcome(store, *load)) == whole


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_stays_paused_is_listed_and_can_be_removed(redis_server: Server, damage: bytes) -> None:
    with PAUSED.open(redis_server.url) as store, direct(redis_server) as client:
        store.save(samples.paused("b"))
        key = f"{{{store._prefix}:paused}}:paused"
        client.hset(key, "a", damage)
        for look in (store.load, store.claim, store.claim):
            with pytest.raises(CorruptRecord) as caught:
                look("a")
            assert caught.value.where == f"field 'a' of Redis key {key!r}"
        assert store.list() == ["a", "b"]
        assert store.recover_orphaned() == 0
        store.remove("a")
        assert store.list() == ["b"]


def test_the_record_of_another_run_is_corrupt(redis_server: Server) -> None:
    with PAUSED.open(redis_server.url) as store, direct(redis_server) as client:
        client.hset(f"{{{store._prefix}:paused}}:paused", "a", samples.paused("b").to_json())
        with pytest.raises(CorruptRecord, match="its run_id is 'b', not 'a'"):
            store.load("a")


def test_a_claim_whose_time_cannot_be_read_counts_as_old(redis_server: Server) -> None:
    with PAUSED.open(redis_server.url) as store, direct(redis_server) as client:
        store.save(samples.paused("a"))
        store.claim("a")
        client.hset(f"{{{store._prefix}:paused}}:claims", "a", "no time")
        assert store.recover_orphaned(older_than=1e9) == 1


@each
def test_a_key_of_another_type_is_reported_before_anything_is_changed(redis_server: Server, kind: Kind) -> None:
    calls = kind.calls("a")
    half = calls[: len(calls) // 2]
    with direct(redis_server) as client:
        with kind.open(redis_server.url) as store:
            outcomes(store, half)
            names = [key.decode().replace(store._prefix, "PREFIX") for key in dump(client, store)]
        for name in names:
            with kind.open(redis_server.url) as store:
                outcomes(store, half)
                wrong = name.replace("PREFIX", store._prefix)
                client.delete(wrong)
                client.xadd(wrong, {"a": "stream"})
                refused = [call_ for call_ in calls if is_refused(client, store, call_)]
                assert refused


def is_refused(client: Any, store: Any, call_: tuple[Any, ...]) -> bool:
    """Make a call; if a record is corrupt, nothing was changed."""
    before = dump(client, store)
    if outcome(store, *call_) is not CorruptRecord:
        return False
    assert dump(client, store) == before
    return True


@pytest.mark.parametrize("part", [":log", ":done"])
def test_a_mark_that_cannot_be_made_whole_is_not_made_in_part(redis_server: Server, part: str) -> None:
    with EFFECTS.open(redis_server.url) as store, direct(redis_server) as client:
        call(store, "save_checkpoint", samples.checkpoint("a"))
        home = f"{store._prefix}:effects:{{a}}"
        client.delete(home + part)
        client.set(home + part, "text")
        before = dump(client, store)
        with pytest.raises(CorruptRecord):
            call(store, "mark_step_complete", "a", "use-1", samples.effect("use-1"))
        assert dump(client, store) == before
        call(store, "delete_checkpoint", "a")
        assert call(store, "load_checkpoint", "a") is None


def test_steps_without_their_order_are_reported(redis_server: Server) -> None:
    with RedisRunStore(redis_server.url, "orderless") as store, direct(redis_server) as client:
        call(store, "upsert_step", "a", samples.step("b"))
        client.delete("orderless:runs:{a}:order")
        with pytest.raises(CorruptRecord, match="does not hold the ids of the steps"):
            call(store, "list_steps", "a")
        call(store, "delete_run", "a")


def large_checkpoint() -> WorkflowCheckpoint:
    """Return a checkpoint of several megabytes, with more effects than Lua can unpack at once."""
    ids = [f"use-{number}" for number in range(20_000)]
    return samples.checkpoint("a", completed_tool_ids=set(ids), side_effects_log=[samples.effect(id_) for id_ in ids])


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
    whole = large_checkpoint()
    half = whole.model_copy(update={emptied: type(getattr(whole, emptied))()})
    with EFFECTS.open(redis_server.url) as store:
        call(store, "save_checkpoint", whole)
        call(store, "save_checkpoint", half)
        assert call(store, "load_checkpoint", "a") == half


def test_a_large_checkpoint_whose_batches_have_expired_is_sent_again(redis_server: Server) -> None:
    whole = large_checkpoint()
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
            call(store, "save_checkpoint", large_checkpoint())
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


@pytest.mark.parametrize("time", [b"", b"noon", b"\xff", b"1.5"])
def test_a_damaged_time_of_a_snapshot_is_reported(redis_server: Server, time: bytes) -> None:
    with SNAPSHOTS.open(redis_server.url) as store, direct(redis_server) as client:
        call(store, "save", samples.snapshot("a", 2))
        client.hset(f"{store._prefix}:snapshots:{{wf:a}}:times", f"{2:020}", time)
        with pytest.raises(CorruptRecord, match="not a number of milliseconds") as caught:
            call(store, "list", "wf", "a")
        assert ":times" in caught.value.where
