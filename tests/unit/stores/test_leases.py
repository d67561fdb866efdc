"""How old a claim must be to be recovered, on every backend that runs without a server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import PausedStore, samples
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.handles import EVERY_BACKEND, Home
from tests.unit.values import label

OLD, NEW = samples.paused(iterations=1), samples.paused(iterations=2)


@pytest.fixture(params=EVERY_BACKEND)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(request.param, "PausedStore", tmp_path)


@pytest.fixture
def store(home: Home) -> Any:
    return home.open()


@pytest.fixture
def other(home: Home) -> Any:
    return home.open()


@pytest.mark.parametrize("frozen_clock", ["2026-01-01T12:00:00.1Z"], indirect=True)
@pytest.mark.parametrize(("age", "recovered"), [(29.9, 0), (29.999999, 0), (30, 1), (30.000001, 1), (3000, 1)])
def test_a_claim_is_recovered_at_the_requested_age(
    store: PausedStore, other: PausedStore, frozen_clock: FrozenClock, age: float, recovered: int
) -> None:
    store.save(OLD)
    store.claim("run-1")
    frozen_clock.tick(age)

    assert other.recover_orphaned(older_than=30) == recovered
    assert other.load("run-1") == (OLD if recovered else None)


@pytest.mark.parametrize("part", [0.1, 0.2, 0.3, 0.123457, 0.7, 0.999999])
def test_the_boundary_is_exact_at_any_part_of_a_second(
    store: PausedStore, frozen_clock: FrozenClock, part: float
) -> None:
    frozen_clock.tick(part)
    store.save(OLD)
    store.claim("run-1")
    frozen_clock.tick(0.3)

    assert store.recover_orphaned(older_than=0.300001) == 0
    assert store.recover_orphaned(older_than=0.3) == 1


def test_a_claim_has_age_0_at_once(store: PausedStore, frozen_clock: FrozenClock) -> None:
    store.save(OLD)
    store.claim("run-1")
    moment = frozen_clock.now

    assert store.recover_orphaned(older_than=0) == 1
    assert frozen_clock.now == moment


def test_without_an_age_every_claim_is_recovered(store: PausedStore, frozen_clock: FrozenClock) -> None:
    """Even a claim from the future, after the clock was set back."""
    store.save(OLD)
    store.claim("run-1")
    frozen_clock.tick(-3600)

    assert store.recover_orphaned(older_than=0) == 0
    assert store.recover_orphaned() == 1


def test_a_young_marker_is_left_alone(
    home: Home, store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
) -> None:
    """Even if the run was paused again: its marker stays, and so does the time of the claim."""
    store.save(OLD)
    store.claim("run-1")
    store.save(NEW)
    frozen_clock.tick(29)

    assert other.recover_orphaned(older_than=30) == 0
    assert other.load("run-1") == NEW
    assert home.has_marker("run-1")

    frozen_clock.tick(1)
    assert other.recover_orphaned(older_than=30) == 0
    assert not home.has_marker("run-1")


def test_a_young_marker_of_a_live_worker_still_belongs_to_it(
    store: PausedStore, other: PausedStore, frozen_clock: FrozenClock
) -> None:
    store.save(OLD)
    store.claim("run-1")
    frozen_clock.tick(29)
    other.recover_orphaned(older_than=30)

    store.complete("run-1")

    assert other.recover_orphaned() == 0


def test_a_new_claim_starts_a_new_lease(store: PausedStore, other: PausedStore, frozen_clock: FrozenClock) -> None:
    store.save(OLD)
    store.claim("run-1")
    frozen_clock.tick(100)
    store.save(NEW)
    other.claim("run-1")
    frozen_clock.tick(29)

    assert store.recover_orphaned(older_than=30) == 0

    frozen_clock.tick(1)
    assert store.recover_orphaned(older_than=30) == 1
    assert store.load("run-1") == NEW


def test_only_old_claims_are_counted(store: PausedStore, other: PausedStore, frozen_clock: FrozenClock) -> None:
    for run_id in ["old", "older", "young"]:
        store.save(samples.paused(run_id))
    store.claim("old")
    store.claim("older")
    frozen_clock.tick(60)
    store.claim("young")

    assert other.recover_orphaned(older_than=60) == 2
    assert other.list() == ["old", "older"]


@pytest.mark.parametrize("bad", [-1, -0.001, math.nan, -math.inf, "30", True, [30]], ids=label)
def test_an_invalid_age_is_refused(store: PausedStore, bad: Any) -> None:
    store.save(OLD)
    store.claim("run-1")

    with pytest.raises(ValueError, match=r"^older_than is .* It must be a number of seconds, at least 0, or None"):
        store.recover_orphaned(older_than=bad)

    assert store.load("run-1") is None
    assert store.recover_orphaned() == 1


@pytest.mark.parametrize("infinite", [math.inf, 10**400], ids=["infinity", "10**400"])
def test_no_claim_reaches_an_infinite_age(store: PausedStore, infinite: float) -> None:
    store.save(OLD)
    store.claim("run-1")

    assert store.recover_orphaned(older_than=infinite) == 0


@pytest.mark.parametrize("end", ["complete", "complete with the token", "complete after losing it", "remove"])
def test_a_handle_forgets_the_token_of_a_finished_claim_but_not_the_claim(store: Any, other: Any, end: str) -> None:
    store.save(OLD)
    store.claim("run-1")
    token = store.token("run-1")
    if end == "complete after losing it":
        other.recover_orphaned()
    match end.split()[0]:
        case "remove":
            store.remove("run-1")
        case _:
            store.complete("run-1", **({"token": token} if "token" in end else {}))

    tokens = getattr(store, "_claims", store)._tokens
    assert not (tokens if isinstance(tokens, dict) else any(tokens._buckets.values()))
    other.save(NEW)
    other.claim("run-1")
    store.complete("run-1")
    assert other.recover_orphaned() == 1
