"""The file stores on a disk that is full, read-only or blind to case."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate import samples
from pytest_wfstate.faults.fake_disk import FakeDisk
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, KINDS, PAUSED, RUNS, Kind, contents

each = pytest.mark.parametrize("kind", KINDS, ids=str)
Act = Callable[[Any], Any]

# Calls that need room, on a store in which "a" has item 1.
NEED_ROOM: list[tuple[Kind, Act]] = [
    *((kind, lambda store, kind=kind: kind.change(store, "a", 2)) for kind in KINDS),
    *((kind, lambda store, kind=kind: kind.change(store, "new", 2)) for kind in KINDS),
    (EFFECTS, lambda store: store.save_checkpoint(samples.checkpoint("a"))),
    (PAUSED, lambda store: store.claim("a")),
    (RUNS, lambda store: store.create_run(samples.run("a"))),
]


def open_with_item(kind: Kind, disk: FakeDisk) -> Any:
    store = kind.open(disk.home / "store", "power")
    kind.change(store, "a", 1)
    return store


@pytest.mark.parametrize("free", [0, 10])
@pytest.mark.parametrize(
    ("kind", "act"),
    NEED_ROOM,
    ids=[
        *(f"{kind} change" for kind in KINDS),
        *(f"{kind} new" for kind in KINDS),
        "checkpoint",
        "claim",
        "create_run",
    ],
)
def test_a_full_disk_is_an_error_and_the_old_record_stands(
    fake_disk: FakeDisk, kind: Kind, act: Act, free: int
) -> None:
    store = open_with_item(kind, fake_disk)
    before = (fake_disk.home / "store" / kind.file).read_bytes()
    fake_disk.fill(free=free)

    with pytest.raises(OSError) as error:
        act(store)

    assert error.value.errno == errno.ENOSPC
    for handle in (store, kind.open(fake_disk.home / "store")):
        assert kind.items(kind.load(handle, "a")) == [1]
        assert kind.load(handle, "new") is None
    assert {name: data for name, data in contents(fake_disk.home / "store").items() if data} == {kind.file: before}


@each
def test_a_store_works_again_when_there_is_room(fake_disk: FakeDisk, kind: Kind) -> None:
    store = open_with_item(kind, fake_disk)
    fake_disk.fill()
    with pytest.raises(OSError):
        kind.change(store, "a", 2)

    fake_disk.free_up()
    kind.change(store, "a", 3)

    assert kind.items(kind.load(store, "a"))[-1] == 3
    assert kind.items(kind.load(store, "a")) == kind.items(kind.load(kind.open(fake_disk.home / "store"), "a"))
    assert 2 not in kind.items(kind.load(store, "a"))


def test_a_run_is_claimed_again_when_there_is_room(fake_disk: FakeDisk) -> None:
    store = open_with_item(PAUSED, fake_disk)
    fake_disk.fill()
    with pytest.raises(OSError):
        store.claim("a")
    assert store.list() == ["a"]

    fake_disk.free_up()

    assert store.claim("a") == samples.paused("a", iterations=1)
    assert store.claim("a") is None


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_compaction_on_a_full_disk_loses_nothing(fake_disk: FakeDisk, kind: Kind) -> None:
    store = kind.open(fake_disk.home / "store")
    for n in range(65):
        kind.change(store, "a", n)
    fake_disk.fill(free=100)

    with pytest.raises(OSError):
        kind.change(store, "a", 65)

    assert kind.items(kind.load(store, "a")) == list(range(65))
    fake_disk.free_up()
    kind.change(store, "a", 65)
    assert kind.items(kind.load(store, "a")) == list(range(66))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.delete], ids=str)
def test_a_record_can_be_deleted_from_a_full_disk(fake_disk: FakeDisk, kind: Kind) -> None:
    assert kind.delete is not None
    store = open_with_item(kind, fake_disk)
    fake_disk.fill()

    kind.delete(store, "a")

    assert kind.load(store, "a") is None


@each
def test_a_read_only_folder_is_an_error_and_can_be_read(fake_disk: FakeDisk, kind: Kind) -> None:
    store = open_with_item(kind, fake_disk)
    fake_disk.read_only(fake_disk.home / "store")

    with pytest.raises(PermissionError):
        kind.change(store, "new", 2)
    if kind.delete is not None:
        with pytest.raises(PermissionError):
            kind.delete(store, "a")

    assert kind.items(kind.load(store, "a")) == [1]
    assert contents(fake_disk.home / "store").keys() == {kind.file}
    fake_disk.writable(fake_disk.home / "store")
    kind.change(store, "new", 2)
    assert kind.items(kind.load(store, "new")) == [2]


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.claim("a"),
        lambda store: store.remove("a"),
        lambda store: store.complete("b"),
        lambda store: store.recover_orphaned(),
    ],
    ids=["claim", "remove", "complete", "recover"],
)
def test_a_paused_call_in_a_read_only_folder_is_an_error_and_changes_nothing(fake_disk: FakeDisk, act: Act) -> None:
    store = open_with_item(PAUSED, fake_disk)
    store.save(samples.paused("b"))
    store.claim("b")
    fake_disk.read_only(fake_disk.home / "store")
    before = contents(fake_disk.home / "store")

    with pytest.raises(PermissionError):
        act(store)

    assert contents(fake_disk.home / "store") == before
    assert store.list() == ["a"]


@each
def test_a_folder_that_cannot_be_made_is_an_error(fake_disk: FakeDisk, kind: Kind) -> None:
    fake_disk.read_only(fake_disk.home)

    with pytest.raises(PermissionError):
        kind.change(kind.open(fake_disk.home / "store"), "a", 1)


@each
def test_a_record_that_may_not_be_read_is_not_taken_for_a_missing_one(fake_disk: FakeDisk, kind: Kind) -> None:
    store = open_with_item(kind, fake_disk)
    os.chmod(fake_disk.home / "store" / kind.file, 0)

    with pytest.raises(PermissionError):
        kind.load(store, "a")


def test_a_file_that_may_not_be_read_hides_no_other_run(fake_disk: FakeDisk) -> None:
    store = open_with_item(PAUSED, fake_disk)
    long = "x" * 1000  # it is read from inside the file
    store.save(samples.paused(long))
    assert store.list() == ["a", long]
    (file,) = (fake_disk.home / "store").glob("*~*")
    os.chmod(file, 0)

    assert store.list() == ["a"]


@each
def test_ids_that_differ_in_case_alone_keep_separate_records(fake_disk: FakeDisk, kind: Kind) -> None:
    fake_disk.ignore_case()
    (fake_disk.home / "probe").touch()
    assert (fake_disk.home / "PROBE").exists()
    store = kind.open(fake_disk.home / "store")

    kind.change(store, "a", 1)
    kind.change(store, "A", 2)

    assert kind.items(kind.load(store, "a")) == [1]
    assert kind.items(kind.load(store, "A")) == [2]
    if kind.delete is not None:
        kind.delete(store, "a")
        assert kind.load(store, "a") is None
        assert kind.items(kind.load(store, "A")) == [2]


def test_runs_that_differ_in_case_alone_are_listed_and_claimed_each_for_itself(fake_disk: FakeDisk) -> None:
    fake_disk.ignore_case()
    store = PAUSED.open(fake_disk.home / "store")
    for one in ("a", "A"):
        store.save(samples.paused(one))

    assert store.list() == ["A", "a"]
    assert store.claim("A") == samples.paused("A")
    assert store.list() == ["a"]
