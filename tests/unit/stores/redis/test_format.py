"""The marker that says which contract and version the keys of a store are."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_wfstate import CorruptRecord, NewerSchema, Server
from pytest_wfstate.stores.redis import format as format_module
from tests.unit.stores.handles import call
from tests.unit.stores.redis.scripts import KINDS, PAUSED, Kind, direct, keys_of, outcomes

each = pytest.mark.parametrize("kind", KINDS, ids=str)


def marker(store: Any) -> str:
    contract = store.contract
    return f"{{{store._prefix}:paused}}:format" if contract == "paused" else f"{store._prefix}:{contract}:format"


@each
def test_the_first_change_writes_the_marker(redis_server: Server, kind: Kind) -> None:
    with kind.open(redis_server.url) as store, direct(redis_server) as client:
        reads = [one for one in kind.calls("a") if one[0].startswith(("get", "load", "list", "latest"))]
        outcomes(store, reads)
        assert client.keys(f"*{store._prefix}*") == []
        outcomes(store, kind.calls("a"))
        assert client.get(marker(store)) == f"{store.contract} 1".encode()


@each
def test_keys_of_a_newer_version_are_refused_and_left_alone(redis_server: Server, kind: Kind) -> None:
    with kind.open(redis_server.url) as store, direct(redis_server) as client:
        client.set(marker(store), f"{store.contract} 2")
        for one in kind.calls("a"):
            with kind.open(redis_server.url, store._prefix) as fresh:
                with pytest.raises(NewerSchema, match=r"have version 2, but .* reads version 1\. Nothing .* Upgrade"):
                    call(fresh, *one)
                with pytest.raises(NewerSchema):  # and again: a refusal is not forgotten
                    call(fresh, *one)
        assert keys_of(client, store) == []
        assert client.get(marker(store)) == f"{store.contract} 2".encode()


def test_keys_of_an_older_version_are_read(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with PAUSED.open(redis_server.url) as store:
        outcomes(store, PAUSED.calls("a")[:8])
        monkeypatch.setattr(format_module, "VERSION", 2)
        with PAUSED.open(redis_server.url, store._prefix) as newer:
            assert newer.recover_orphaned() == 1
            assert newer.claim("a") is not None


@pytest.mark.parametrize("damage", [b"", b"runs 1", b"paused", b"paused one", b"\xff", "paused \u00b2".encode()])
def test_a_marker_that_cannot_be_read_is_reported(redis_server: Server, damage: bytes) -> None:
    with PAUSED.open(redis_server.url) as store, direct(redis_server) as client:
        client.set(marker(store), damage)
        with pytest.raises(CorruptRecord, match="not 'paused' and a version") as caught:
            store.list()
        assert marker(store) in caught.value.where
