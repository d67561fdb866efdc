"""Failover: a change that was acknowledged is on a replica, if the store waits for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_wfstate import LostConnection, RedisPausedStore, samples
from pytest_wfstate.faults.servers.redis import RedisServer
from pytest_wfstate.stores.redis import client as client_module
from tests.unit.stores.redis.scripts import KINDS, PAUSED, Kind, direct, outcomes
from tests.unit.stores.redis.sendings import Meanwhile


class Pair:
    """A server and its replica."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self.primary = primary
        self.replica = replica
        with direct(primary) as client, direct(replica) as other:
            address = urlsplit(primary.url)
            other.config_set("masterauth", address.password)
            other.replicaof(address.hostname, address.port)
            while not client.info("replication")["connected_slaves"] or not client.wait(1, 100):
                client.set("is it there", "yet")

    def fail_over(self) -> None:
        """Kill the primary and promote the replica."""
        self.primary.kill()
        with direct(self.replica) as client:
            client.replicaof("NO", "ONE")

    def stall(self) -> None:
        """Suspend the replica: it confirms nothing any more."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with direct(self.primary) as client:
            assert client.info("replication")["connected_slaves"] == 1
        assert self.replica._process is not None
        os.kill(self.replica._process.pid, number)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with RedisServer() as primary, RedisServer() as replica:
        yield Pair(primary, replica)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_store_that_waits_for_a_replica_behaves_like_any_other(pair: Pair, kind: Kind) -> None:
    import pytest_wfstate

    store: Any = getattr(pytest_wfstate, f"Redis{kind.protocol}")
    with store(pair.primary.url, "p", wait_replicas=1, clock=kind.memory()._clock) as opened:
        assert outcomes(opened, kind.calls("a")) == kind.expected("a")


def test_a_claim_that_was_acknowledged_survives_a_failover(pair: Pair) -> None:
    with RedisPausedStore(pair.primary.url, "p", wait_replicas=1) as store:
        store.save(samples.paused("a"))
        assert store.claim("a") == samples.paused("a")
        token = store.token("a")
    pair.fail_over()
    with RedisPausedStore(pair.replica.url, "p") as store:
        assert store.claim("a") is None
        assert store.complete("a", token=token) is True


def test_a_change_that_no_replica_confirms_is_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_REPLICAS_WAIT", 50)
    with RedisPausedStore(pair.primary.url, "p", wait_replicas=1) as store:
        store.save(samples.paused("a"))
        pair.stall()
        try:
            with pytest.raises(LostConnection, match=r"has made the change .* only 0 of 1 replicas are up.* failover"):
                store.claim("a")
            assert store.list() == []
        finally:
            pair.thaw()
        store.complete("a", token=store.token("a"))


def test_a_change_whose_answer_was_lost_is_on_the_replica_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry finds the receipt and changes nothing by itself; it has to wait all the same."""
    monkeypatch.setattr(client_module, "_REPLICAS_WAIT", 50)
    with RedisPausedStore(pair.primary.url, "p", wait_replicas=1) as store:
        store.save(samples.paused("a"))
        pair.stall()
        try:
            Meanwhile(store, lambda: None)
            with pytest.raises(LostConnection, match="only 0 of 1 replicas are up"):
                store.remove("a")
        finally:
            pair.thaw()


def test_a_retry_without_a_replica_does_not_wait(pair: Pair) -> None:
    with PAUSED.open(pair.primary.url, "p") as store:
        pair.stall()
        try:
            assert outcomes(store, PAUSED.calls("a")) == PAUSED.expected("a")
        finally:
            pair.thaw()


@pytest.mark.parametrize("number", [-1, 1.5, True, "1", None])
def test_a_number_of_replicas_that_is_not_one_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match=r"^wait_replicas is .* It must be a whole number of replicas, 0 for none\.$"):
        RedisPausedStore("redis://localhost", wait_replicas=number)
