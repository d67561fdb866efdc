"""What a handle remembers of its claims: their tokens while they last, and for good which runs it ever claimed."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from pytest_wfstate import NotFound
from pytest_wfstate.stores import own_claims
from pytest_wfstate.stores.own_claims import OwnClaims
from tests.unit.values import TRICKY_IDS

TOKEN, OLD, NEW, NEWER = (OwnClaims.new_token() for _ in range(4))


def test_a_finished_claim_loses_its_token_but_is_never_forgotten() -> None:
    claims = OwnClaims()
    claims.made("run-1", TOKEN)
    assert claims.needed("run-1") == (claims.token("run-1"),) == (TOKEN,)

    claims.finished("run-1", [TOKEN])

    assert claims.needed("run-1") == ()
    with pytest.raises(NotFound):
        claims.token("run-1")


def test_a_claim_finishes_with_its_own_token_only() -> None:
    claims = OwnClaims()
    claims.made("run-1", NEW)

    claims.finished("run-1", [OLD])
    assert claims.token("run-1") == NEW

    claims.finished("run-1", [NEW])
    with pytest.raises(NotFound):
        claims.token("run-1")


def test_a_token_that_is_not_one_of_ours_finishes_nothing() -> None:
    claims = OwnClaims()
    claims.made("run-1", TOKEN)

    claims.finished("run-1", [TOKEN.upper(), f" {TOKEN}", "another's", ""])

    assert claims.tokens("run-1") == (TOKEN,)


def test_a_claim_is_forgotten_when_another_thread_forgets_one_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is in the same place by the time it is removed."""
    monkeypatch.setattr(own_claims, "_PREFIX", 0)
    claims = OwnClaims()
    for number in range(3):
        claims.made(f"run-{number}", TOKEN)
    find = own_claims._find

    def interleaved(*args: Any) -> int:
        place = find(*args)
        if args[1][own_claims._SIZE :]:  # on its way to remove a token
            monkeypatch.setattr(own_claims, "_find", find)
            claims.finished("run-0", [TOKEN])
        return place

    monkeypatch.setattr(own_claims, "_find", interleaved)
    claims.finished("run-1", [TOKEN])

    assert [claims.tokens(f"run-{number}") for number in range(3)] == [(), (), (TOKEN,)]


def test_a_claim_that_may_have_been_made_is_kept_beside_the_one_before() -> None:
    claims = OwnClaims()
    claims.made("run-1", OLD)
    claims.made("run-1", NEW)
    assert claims.needed("run-1") == (OLD, NEW)
    assert claims.token("run-1", lambda: OLD) == OLD
    assert claims.token("run-1", lambda: "another's") == NEW

    claims.made("run-1", NEWER, instead_of=(OLD, NEW))
    assert claims.needed("run-1") == (NEWER,)


@pytest.mark.parametrize(("is_undone", "expected"), [(True, (OLD,)), (False, (OLD, NEW))])
def test_a_claim_that_raises_is_forgotten_if_it_was_undone(is_undone: bool, expected: tuple[str, ...]) -> None:
    claims = OwnClaims()
    claims.made("run-1", OLD)
    with pytest.raises(OSError, match="failed"), claims.making("run-1", NEW, lambda: is_undone):
        raise OSError("failed")
    assert claims.needed("run-1") == expected


def test_a_first_claim_that_was_undone_leaves_no_trace() -> None:
    claims = OwnClaims()
    with pytest.raises(OSError, match="failed"), claims.making("run-1", TOKEN, lambda: True):
        raise OSError("failed")
    assert claims.needed("run-1") is None
    with pytest.raises(NotFound):
        claims.token("run-1")


def test_a_claim_whose_outcome_cannot_be_found_out_is_kept_beside_the_one_before() -> None:
    claims = OwnClaims()
    claims.made("run-1", OLD)

    def unknown() -> bool:
        raise PermissionError("cannot look")

    with pytest.raises(PermissionError), claims.making("run-1", NEW, unknown):
        raise OSError("failed")
    assert claims.needed("run-1") == (OLD, NEW)


@pytest.mark.parametrize("size", [1, 2, own_claims._SIZE])
def test_only_what_was_claimed_counts_as_claimed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Short digests stand next to each other in one bucket, and one that spans two of them is not a member."""
    monkeypatch.setattr(own_claims, "_PREFIX", 0)
    monkeypatch.setattr(own_claims, "_SIZE", size)
    ids = [*TRICKY_IDS, *(f"run-{n}" for n in range(300))]
    claimed, other = ids[::2], ids[1::2]
    claims = OwnClaims()
    for run_id in claimed:
        claims.made(run_id, TOKEN)

    digests = {own_claims._digest(run_id) for run_id in claimed}
    assert all(claims.needed(run_id) == (TOKEN,) for run_id in claimed)
    assert all((claims.needed(run_id) is not None) == (own_claims._digest(run_id) in digests) for run_id in other)


@pytest.mark.parametrize(("is_finished", "bytes_each"), [(True, 50), (False, 80)])
def test_a_claim_takes_few_bytes(monkeypatch: pytest.MonkeyPatch, is_finished: bool, bytes_each: int) -> None:
    """In a dict, with its token, a finished one took 280, and one that others finish 390."""
    monkeypatch.setattr(own_claims, "_PREFIX", 1)  # buckets as full as after 500,000 claims
    claims = OwnClaims()
    tracemalloc.start()
    try:
        for number in range(2_000):
            run_id = f"run-{number}"
            claims.made(run_id, claims.new_token())
            if is_finished:
                claims.finished(run_id, claims.tokens(run_id))
        gc.collect()  # tuples that the interpreter keeps for later count as well
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 2_000 * bytes_each
    assert claims.needed("run-0") is not None
    assert len(claims.tokens("run-0")) == (not is_finished)
