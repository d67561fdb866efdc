"""The settings of a server that decide whether it keeps what it acknowledges, and the warnings about them."""

from __future__ import annotations

import warnings
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.sentinel import Sentinel

from pytest_wfstate import LostConnection, NotDurable, RedisPausedStore, Server, samples
from pytest_wfstate.faults.servers.redis import RedisServer
from pytest_wfstate.stores.redis.settings import _ASKED
from tests.unit.stores.redis.scripts import direct

KEEPS_NOTHING = r"at 127.* keeps nothing on disk.* Its setting .* Set appendonly to 'yes'"


@pytest.fixture(autouse=True)
def _unasked() -> None:
    """Forget which addresses were asked: another test's server may have had the same."""
    _ASKED.clear()


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


@pytest.mark.parametrize("when", ["always", "everysec", "no"])
def test_a_server_that_writes_each_change_to_disk_sooner_or_later_causes_no_warning(when: str) -> None:
    with RedisServer("volatile") as server, direct(server) as client, RedisPausedStore(server.url) as store:
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", when)
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


def test_a_server_that_refuses_to_show_its_settings_causes_a_warning_too() -> None:
    """A managed one does, but INFO says whether it writes each change to disk."""
    with RedisServer("volatile") as server, direct(server) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-config")
        with RedisPausedStore(f"redis://worker:secret@{server.url.partition('@')[2]}") as store:
            with pytest.warns(NotDurable, match=r"at most snapshots on disk.* It reports aof_enabled:0\. Set append"):
                store.list()
            store.list()


def test_a_server_that_hides_its_settings_is_trusted() -> None:
    with RedisServer("volatile") as server, direct(server) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-config", "-info")
        place = server.url.partition("@")[2]
        with RedisPausedStore(f"redis://worker:secret@{place}") as store:
            assert store.list() == []
