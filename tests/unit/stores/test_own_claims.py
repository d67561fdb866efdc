"""What a handle remembers of its claims: their tokens while they last, and for good which runs it ever claimed."""

from __future__ import annotations

import tracemalloc

import pytest

from pytest_wfstate import NotFound
from pytest_wfstate.stores import own_claims
from pytest_wfstate.stores.own_claims import OwnClaims
from tests.unit.values import TRICKY_IDS


def test_a_finished_claim_loses_its_token_but_is_never_forgotten() -> None:
    claims = OwnClaims()
    claims.made("run-1", "token")
    assert claims.needed("run-1") == claims.token("run-1") == "token"

    claims.finished("run-1")

    assert claims.needed("run-1") not in (None, "token")
    with pytest.raises(NotFound):
        claims.token("run-1")


def test_a_claim_finishes_with_its_own_token_only() -> None:
    claims = OwnClaims()
    claims.made("run-1", "new")

    claims.finished("run-1", "old")
    assert claims.token("run-1") == "new"

    claims.finished("run-1", "new")
    with pytest.raises(NotFound):
        claims.token("run-1")


@pytest.mark.parametrize("size", [1, 2, own_claims._SIZE])
def test_only_what_was_claimed_counts_as_claimed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Short digests stand next to each other in one bucket, and one that spans two of them is not a member."""
    monkeypatch.setattr(own_claims, "_PREFIX", 0)
    monkeypatch.setattr(own_claims, "_SIZE", size)
    ids = [*TRICKY_IDS, *(f"run-{n}" for n in range(300))]
    claimed, other = ids[::2], ids[1::2]
    claims = OwnClaims()
    for run_id in claimed:
        claims.made(run_id, "token")

    digests = {own_claims._digest(run_id) for run_id in claimed}
    assert all(claims.needed(run_id) == "token" for run_id in claimed)
    assert all((claims.needed(run_id) is not None) == (own_claims._digest(run_id) in digests) for run_id in other)


def test_a_finished_claim_takes_fifty_bytes_at_most() -> None:
    """Issue 14, number 21: in a dict, with its token, it took 280."""
    claims = OwnClaims()
    tracemalloc.start()
    try:
        for number in range(20_000):
            run_id = f"run-{number}"
            claims.made(run_id, claims.new_token())
            claims.finished(run_id)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 20_000 * 50
    assert claims.needed("run-0") is not None
