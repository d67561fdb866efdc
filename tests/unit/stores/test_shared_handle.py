"""A handle that threads share: what one of them finishes does not touch what another has claimed since."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FencedPausedStore, NotFound, RedisPausedStore, Server, samples
from pytest_wfstate.stores.own_claims import OwnClaims
from tests.unit.stores.handles import Home

FINISHES: dict[str, Callable[[FencedPausedStore], Any]] = {
    "complete": lambda store: store.complete("run-1"),
    "complete with a token": lambda store: store.complete("run-1", token=store.token("run-1")),
    "remove": lambda store: store.remove("run-1"),
}
each = pytest.mark.parametrize("finish", FINISHES.values(), ids=list(FINISHES))


@pytest.fixture(params=["file", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FencedPausedStore:
    """A store of each backend that remembers its claims outside the lock on what it stores."""
    if request.param == "redis":
        server: Server = request.getfixturevalue("redis_server")
        return RedisPausedStore(server.url, prefix=uuid.uuid4().hex)
    opened: FencedPausedStore = Home(request.param, "PausedStore", tmp_path).open()
    return opened


@pytest.mark.parametrize(
    ("finish", "claimed_before"),
    [*((finish, True) for finish in FINISHES.values()), (FINISHES["complete"], False), (FINISHES["remove"], False)],
    ids=[*FINISHES, "complete without a claim", "remove without a claim"],
)
def test_a_claim_made_while_another_thread_finishes_keeps_its_token(
    store: FencedPausedStore,
    finish: Callable[[FencedPausedStore], Any],
    claimed_before: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other thread claims when the run is finished in the store, and not yet in the handle."""
    if claimed_before:
        store.save(samples.paused())
        store.claim("run-1")
    forget = OwnClaims.finished
    claimed: list[Any] = []

    def claim_first(claims: OwnClaims, *args: Any) -> None:
        store.save(samples.paused())
        claimed.append(store.claim("run-1"))
        claimed.append(claims.token("run-1"))
        forget(claims, *args)

    monkeypatch.setattr(OwnClaims, "finished", claim_first)

    finish(store)

    assert claimed == [samples.paused(), store.token("run-1")]
    assert store.renew("run-1", token=store.token("run-1")) is True


@each
def test_a_finished_claim_has_no_token(store: FencedPausedStore, finish: Callable[[FencedPausedStore], Any]) -> None:
    store.save(samples.paused())
    store.claim("run-1")

    finish(store)

    with pytest.raises(NotFound):
        store.token("run-1")
