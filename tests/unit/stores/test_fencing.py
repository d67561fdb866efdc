"""Fencing tokens, as the memory store specifies them. The suites hold every other backend to it."""

from __future__ import annotations

import pytest

from pytest_wfstate import FencedPausedStore, MemoryPausedStore, NotFound, PausedStore, samples
from pytest_wfstate.faults.frozen_clock import FrozenClock

RUN = samples.paused()


@pytest.fixture
def store() -> MemoryPausedStore:
    """A store in which this handle has claimed `run-1`."""
    store = MemoryPausedStore()
    store.save(RUN)
    store.claim("run-1")
    return store


@pytest.fixture
def other(store: MemoryPausedStore) -> MemoryPausedStore:
    return store.handle()


def test_a_fenced_store_is_a_paused_store(store: MemoryPausedStore) -> None:
    assert isinstance(store, FencedPausedStore)
    assert isinstance(store, PausedStore)


class TestToken:
    def test_is_the_same_until_the_run_is_completed(self, store: MemoryPausedStore) -> None:
        token = store.token("run-1")

        assert store.token("run-1") == token
        store.complete("run-1", token=token)
        with pytest.raises(NotFound, match="this handle has no token for run 'run-1'"):
            store.token("run-1")

    def test_belongs_to_the_handle_that_claimed_the_run(self, other: MemoryPausedStore) -> None:
        with pytest.raises(NotFound, match="it has not claimed the run"):
            other.token("run-1")

    def test_is_new_for_each_claim(self, store: MemoryPausedStore, other: MemoryPausedStore) -> None:
        tokens = [store.token("run-1")]
        for handle in (store, other, store):
            handle.recover_orphaned()
            handle.claim("run-1")
            tokens.append(handle.token("run-1"))

        assert len(set(tokens)) == 4

    def test_of_a_lost_claim_is_kept_but_worth_nothing(self, store: MemoryPausedStore, other: PausedStore) -> None:
        token = store.token("run-1")
        other.recover_orphaned()
        other.claim("run-1")

        assert store.token("run-1") == token
        assert store.renew("run-1", token=token) is False
        assert store.complete("run-1", token=token) is False


class TestComplete:
    def test_with_its_token_a_restarted_worker_completes_its_run(
        self, store: MemoryPausedStore, other: MemoryPausedStore
    ) -> None:
        assert other.complete("run-1", token=store.token("run-1")) is True
        assert other.recover_orphaned() == 0

    def test_with_its_token_a_restarted_worker_does_not_drop_the_claim_of_the_one_that_took_over(
        self, store: MemoryPausedStore, other: MemoryPausedStore
    ) -> None:
        """The first worker stalls, the second takes over, the first restarts and completes."""
        token = store.token("run-1")
        other.recover_orphaned()
        other.claim("run-1")

        restarted = store.handle()
        assert restarted.complete("run-1", token=token) is False

        assert store.handle().recover_orphaned() == 1
        assert store.load("run-1") == RUN

    def test_without_a_token_a_restarted_worker_drops_any_claim_as_in_the_seed(
        self, store: MemoryPausedStore, other: MemoryPausedStore
    ) -> None:
        other.recover_orphaned()
        other.claim("run-1")

        assert store.handle().complete("run-1") is None

        assert store.recover_orphaned() == 0

    def test_a_handle_that_completed_with_a_token_stays_late_for_good(
        self, store: MemoryPausedStore, other: MemoryPausedStore
    ) -> None:
        store.complete("run-1", token=store.token("run-1"))
        other.save(RUN)
        other.claim("run-1")

        store.complete("run-1")

        assert other.recover_orphaned() == 1


class TestRenew:
    def test_makes_a_claim_young(self, frozen_clock: FrozenClock) -> None:
        store = MemoryPausedStore()
        store.save(RUN)
        store.claim("run-1")
        frozen_clock.tick(50)
        assert store.renew("run-1", token=store.token("run-1")) is True
        frozen_clock.tick(50)

        assert store.recover_orphaned(older_than=60) == 0
        frozen_clock.tick(10)
        assert store.recover_orphaned(older_than=60) == 1

    def test_of_a_run_that_is_not_claimed_changes_nothing(self, store: MemoryPausedStore) -> None:
        token = store.token("run-1")
        store.recover_orphaned()

        assert store.renew("run-1", token=token) is False
        assert store.list() == ["run-1"]
