"""What a Redis server does with the stores' keys: it keeps them, lists them, and gives each run a slot."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from pytest_wfstate import (
    CorruptRecord,
    RedisPausedStore,
    RedisRunStore,
    Server,
    samples,
)
from pytest_wfstate.faults.servers.redis import RedisServer
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
LOOKS = {"load", "list", "load_checkpoint", "get_run", "get_step", "list_steps", "latest"}
"""Calls that only read: what a kill after one could lose, a kill before it would have."""


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
        results, changed = [], True
        for call_ in calls:
            if changed:
                redis_server.kill()
                redis_server.restart()
            results += outcomes(store, [call_])
            changed = call_[0] not in LOOKS
    assert results == outcomes(memory, calls)


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


@pytest.mark.parametrize("time", [b"", b"noon", b"\xff", b"1.5"])
def test_a_damaged_time_of_a_snapshot_is_reported(redis_server: Server, time: bytes) -> None:
    with SNAPSHOTS.open(redis_server.url) as store, direct(redis_server) as client:
        call(store, "save", samples.snapshot("a", 2))
        client.hset(f"{store._prefix}:snapshots:{{wf:a}}:times", f"{2:020}", time)
        with pytest.raises(CorruptRecord, match="not a number of milliseconds") as caught:
            call(store, "list", "wf", "a")
        assert ":times" in caught.value.where
