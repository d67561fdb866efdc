"""Leases: the files that record who claimed a run, and when."""

from __future__ import annotations

import copy
import datetime
import json
from pathlib import Path

import pytest

from pytest_wfstate import Crash, Disk, FilePausedStore, samples
from pytest_wfstate.faults.frozen_clock import FrozenClock
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.kinds import contents


@pytest.fixture
def store(tmp_path: Path) -> FilePausedStore:
    """A store in which this handle has claimed `run-1`."""
    store = FilePausedStore(tmp_path / "home", "process")
    store.save(samples.paused("run-1"))
    store.claim("run-1")
    return store


def another(store: FilePausedStore) -> FilePausedStore:
    return FilePausedStore(store.directory, "process")


def lease(store: FilePausedStore) -> Path:
    return store.directory / "run-1.lease"


def test_a_lease_records_when_the_run_was_claimed(tmp_path: Path, frozen_clock: FrozenClock) -> None:
    store = FilePausedStore(tmp_path, "process")
    store.save(samples.paused("run-1"))
    store.claim("run-1")

    assert sorted(contents(tmp_path)) == ["run-1.inflight", "run-1.lease"]
    assert json.loads(lease(store).read_bytes())["claimed_at"] == frozen_clock.now.timestamp()


@pytest.mark.parametrize(("age", "rearmed"), [(0, 0), (59.9, 0), (60, 1), (61, 1)])
def test_only_claims_as_old_as_asked_are_recovered(
    tmp_path: Path, frozen_clock: FrozenClock, age: float, rearmed: int
) -> None:
    store = FilePausedStore(tmp_path, "process")
    store.save(samples.paused("run-1"))
    store.claim("run-1")
    frozen_clock.tick(age)

    assert another(store).recover_orphaned(older_than=60) == rearmed

    assert store.list() == ["run-1"] * rearmed


def test_a_claim_from_a_clock_that_is_ahead_is_young_until_it_is_not_asked_for_its_age(
    tmp_path: Path, frozen_clock: FrozenClock
) -> None:
    store = FilePausedStore(tmp_path, "process")
    store.save(samples.paused("run-1"))
    store.claim("run-1")
    frozen_clock.tick(-3600)

    assert store.recover_orphaned(older_than=0) == 0
    assert store.recover_orphaned() == 1


UNREADABLE = {
    "empty": b"",
    "cut short": b'{"token": "0123',
    "zeros": bytes(80),
    "no text": b"\xff\xfe\xfd",
    "no object": b"[1, 2]",
    "a number": b"17",
    "no time": b'{"token": "x"}',
    "a time that is null": b'{"claimed_at": null}',
    "a time that is text": b'{"claimed_at": "noon"}',
    "a time that is a list": b'{"claimed_at": [1]}',
    "not a number": b'{"claimed_at": NaN}',
    "infinity": b'{"claimed_at": Infinity}',
    "too long a number": b'{"claimed_at": %s}' % (b"9" * 400),
    "far too long a number": b'{"claimed_at": %s}' % (b"9" * 5000),
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_a_lease_that_cannot_be_read_counts_as_expired(store: FilePausedStore, data: bytes) -> None:
    lease(store).write_bytes(data)

    assert another(store).recover_orphaned(older_than=10**9) == 1

    assert store.list() == ["run-1"]


def test_a_lease_that_is_missing_counts_as_expired(store: FilePausedStore) -> None:
    lease(store).unlink()

    assert another(store).recover_orphaned(older_than=10**9) == 1


def test_completion_leaves_nothing(store: FilePausedStore) -> None:
    store.complete("run-1")

    assert contents(store.directory) == {}


def test_completion_by_a_restarted_worker_leaves_nothing(store: FilePausedStore) -> None:
    another(store).complete("run-1")

    assert contents(store.directory) == {}


@pytest.mark.parametrize("again", [False, True])
def test_removal_leaves_nothing(store: FilePausedStore, again: bool) -> None:
    if again:
        store.save(samples.paused("run-1"))

    store.remove("run-1")

    assert contents(store.directory) == {}


@pytest.mark.parametrize("again", [False, True])
def test_recovery_leaves_the_paused_run_alone(store: FilePausedStore, again: bool) -> None:
    if again:
        store.save(samples.paused("run-1", iterations=2))

    assert store.recover_orphaned() == (0 if again else 1)

    iterations = 2 if again else 1
    assert store.load("run-1") == samples.paused("run-1", iterations=iterations)
    assert contents(store.directory).keys() == {"run-1.json", "run-1.lease"}
    store.remove("run-1")
    assert contents(store.directory) == {}


def test_a_late_completion_does_not_free_the_claim_of_another(store: FilePausedStore) -> None:
    other = another(store)
    other.recover_orphaned()
    other.claim("run-1")

    store.complete("run-1")

    assert other.recover_orphaned() == 1


def test_a_late_completion_does_not_free_the_claim_of_a_worker_forked_from_the_same_handle(
    store: FilePausedStore,
) -> None:
    sibling = another(store)
    sibling._claims = copy.deepcopy(store._claims)  # what a fork copies
    sibling.recover_orphaned()
    sibling.claim("run-1")

    store.complete("run-1")

    assert sibling.recover_orphaned() == 1


def test_a_handle_that_claims_again_may_complete(store: FilePausedStore) -> None:
    store.recover_orphaned()
    store.claim("run-1")

    store.complete("run-1")

    assert contents(store.directory) == {}


def test_a_claim_writes_its_lease_before_it_takes_the_run(store: FilePausedStore, calls: Calls) -> None:
    store.complete("run-1")
    store.save(samples.paused("run-1"))
    calls.start()

    store.claim("run-1")

    assert calls.all == ["create run-1.lease", "write run-1.lease", "rename run-1.json"]


def test_a_claim_on_a_run_that_paused_again_leaves_the_old_lease_until_it_has_the_run(
    store: FilePausedStore, calls: Calls
) -> None:
    store.save(samples.paused("run-1"))
    calls.start()

    store.claim("run-1")

    new = "run-1.lease.next"
    assert calls.all == [f"create {new}", f"write {new}", "rename run-1.json", f"rename {new}"]
    assert sorted(contents(store.directory)) == ["run-1.inflight", "run-1.lease"]


@pytest.mark.parametrize("died", ["before the rename", "after it"])
def test_a_claim_that_replaces_another_has_its_token_from_the_rename_on(store: FilePausedStore, died: str) -> None:
    old, newer = store.token("run-1"), another(store)
    store.save(samples.paused("run-1", iterations=2))
    record, marker, lease_file = (store.directory / f"run-1.{name}" for name in ("json", "inflight", "lease"))
    before = {path: path.read_bytes() for path in (record, marker, lease_file)}
    newer.claim("run-1")
    new_lease = store.directory / "run-1.lease.next"
    lease_file.rename(new_lease)
    lease_file.write_bytes(before[lease_file])
    if died == "before the rename":
        marker.write_bytes(before[marker])
        record.write_bytes(before[record])

    store.save(samples.paused("run-1", iterations=3))

    assert another(store).complete("run-1", token=old) is (died == "before the rename")
    assert another(store).complete("run-1", token=newer.token("run-1")) is (died == "after it")
    assert sorted(contents(store.directory)) == ["run-1.json", "run-1.lease"]


@pytest.mark.parametrize("failing", ["create run-1.lease", "write run-1.lease", "rename run-1.json"])
def test_a_claim_that_fails_leaves_the_run_paused(store: FilePausedStore, calls: Calls, failing: str) -> None:
    store.recover_orphaned()
    calls.fail(failing, OSError(28, "full"))

    with pytest.raises(OSError, match="full"):
        store.claim("run-1")

    assert store.list() == ["run-1"]
    assert another(store).recover_orphaned() == 0
    assert store.claim("run-1") == samples.paused("run-1")


@pytest.mark.parametrize("failing", ["rename run-1.inflight", "unlink run-1.lease"])
def test_a_completion_that_fails_can_be_repeated(store: FilePausedStore, calls: Calls, failing: str) -> None:
    calls.fail(failing, OSError(5, "broken"))
    with pytest.raises(OSError, match="broken"):
        store.complete("run-1")

    store.complete("run-1")

    assert another(store).recover_orphaned() == 0
    assert contents(store.directory) == {}


def test_a_renewal_is_durable_when_it_returns(crash: Crash, frozen_clock: FrozenClock) -> None:
    start = frozen_clock.now

    def renew(home: Path) -> None:
        store = FilePausedStore(home)
        frozen_clock.move_to(start)
        store.save(samples.paused("run-1"))
        store.claim("run-1")
        frozen_clock.move_to(start + datetime.timedelta(seconds=50))
        store.renew("run-1", token=store.token("run-1"))
        crash.ack("renewed")

    def restart(disk: Disk) -> None:
        frozen_clock.move_to(start + datetime.timedelta(seconds=100))
        recovered = FilePausedStore(disk.home).recover_orphaned(older_than=60)
        assert recovered == 0 or not disk.acked

    crash.explore(renew, restart)


def test_a_stale_marker_is_dropped_unread(store: FilePausedStore) -> None:
    """Seed 001: recover_rearms_orphaned_inflight, whose marker is not a record."""
    store.complete("run-1")
    store.save(samples.paused("both"))
    marker = store.directory / "both.inflight"
    marker.write_text("stale")
    assert store.recover_orphaned() == 0
    assert not marker.exists()
    assert store.claim("both") == samples.paused("both")
