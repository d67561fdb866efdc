"""Files that were damaged: loud, local, and healed by saving or deleting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import CorruptRecord, FilePausedStore, ForeignFile, samples
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, KINDS, PAUSED, RUNS, SNAPSHOTS, WHOLE_FILES, Kind, contents

each = pytest.mark.parametrize("kind", KINDS, ids=str)
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "no text": lambda data: b"\xff" * len(data),
    "other JSON": lambda _: b"[]",
    "another record": lambda _: b'{"run_id": "a"}',
}
each_damage = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)


def shown(kind: Kind, home: Path) -> Any:
    """Load "a", or name the corrupt file."""
    try:
        return kind.load(kind.open(home), "a")
    except CorruptRecord as error:
        return f"corrupt: {error.where}"


def damaged(kind: Kind, home: Path, damage: Callable[[bytes], bytes]) -> Any:
    """Open a store in which "a" is damaged and "b" is not."""
    store = kind.open(home)
    for id_ in ("a", "b"):
        kind.change(store, id_, 1)
    path = home / kind.file
    path.write_bytes(damage(path.read_bytes()))
    return kind.open(home)


@pytest.mark.parametrize("kind", WHOLE_FILES, ids=str)
def test_a_file_cut_short_at_any_byte_is_corrupt(kind: Kind, tmp_path: Path) -> None:
    kind.change(kind.open(tmp_path), "a", 1)
    path = tmp_path / kind.file
    data = path.read_bytes()

    outcomes = []
    for length in range(len(data)):
        path.write_bytes(data[:length])
        outcomes.append(shown(kind, tmp_path))

    assert outcomes == [f"corrupt: {path}"] * len(data)


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_journal_cut_short_at_any_byte_is_corrupt_or_holds_all_whole_lines(kind: Kind, tmp_path: Path) -> None:
    store, path = kind.open(tmp_path), tmp_path / kind.file
    expected: list[Any] = []
    state: Any = f"corrupt: {path}"
    for n in range(3):
        kind.change(store, "a", n)
        expected += [state] * (path.stat().st_size - len(expected))
        state = kind.load(store, "a")
    data = path.read_bytes()

    outcomes = []
    for length in range(len(data)):
        path.write_bytes(data[:length])
        outcomes.append(shown(kind, tmp_path))

    assert outcomes == expected


@each
@each_damage
def test_damage_is_named_and_hurts_no_other_record(
    kind: Kind, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    store = damaged(kind, tmp_path, damage)

    with pytest.raises(CorruptRecord) as error:
        kind.load(store, "a")

    assert error.value.where == str(tmp_path / kind.file)
    assert str(tmp_path / kind.file) in str(error.value)
    assert kind.items(kind.load(store, "b")) == [1]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.save], ids=str)
@each_damage
def test_saving_heals(kind: Kind, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert kind.save is not None
    store = damaged(kind, tmp_path, damage)

    kind.save(store, "a", 5)

    assert kind.items(kind.load(store, "a")) == [5]
    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [5]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.delete], ids=str)
@each_damage
def test_deleting_heals(kind: Kind, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert kind.delete is not None
    store = damaged(kind, tmp_path, damage)

    kind.delete(store, "a")

    assert kind.load(store, "a") is None
    kind.change(store, "a", 5)
    assert kind.items(kind.load(store, "a")) == [5]


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (EFFECTS, lambda store: EFFECTS.change(store, "a", 2)),
        (PAUSED, lambda store: store.claim("a")),
        (SNAPSHOTS, lambda store: SNAPSHOTS.change(store, "a", 2)),
        (SNAPSHOTS, lambda store: store.fork(samples.key("a", 1))),
        (RUNS, lambda store: RUNS.change(store, "a", 2)),
        (RUNS, lambda store: store.create_run(samples.run("a"))),
        (RUNS, lambda store: store.update_context("a", {})),
    ],
    ids=["mark", "claim", "snapshot", "fork", "step", "create_run", "update_context"],
)
@each_damage
def test_a_change_to_a_damaged_record_is_refused_and_changes_nothing(
    kind: Kind, act: Callable[[Any], Any], damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    store = damaged(kind, tmp_path, damage)
    before = contents(tmp_path)

    with pytest.raises(CorruptRecord):
        act(store)

    assert contents(tmp_path) == before


@each
def test_damage_after_a_handle_has_read_the_record_is_seen(kind: Kind, tmp_path: Path) -> None:
    store = kind.open(tmp_path)
    kind.change(store, "a", 1)
    path = tmp_path / kind.file
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(CorruptRecord):
        kind.load(store, "a")


@each_damage
def test_a_damaged_run_is_listed_among_the_others(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert damaged(PAUSED, tmp_path, damage).list() == ["a", "b"]


def test_a_damaged_run_with_a_long_id_does_not_hide_the_others(tmp_path: Path) -> None:
    store, long = FilePausedStore(tmp_path, "process"), "x" * 1024
    store.save(samples.paused("b"))
    store.save(samples.paused(long))
    assert store.list() == ["b", long]
    (path,) = (tmp_path / name for name in contents(tmp_path) if name != "b.json")

    path.write_bytes(b"{")

    assert store.list() == ["b"]
    with pytest.raises(CorruptRecord):
        store.load(long)
    store.remove(long)
    assert store.load(long) is None


@each_damage
def test_a_damaged_claim_does_not_keep_others_from_recovery(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    store = FilePausedStore(tmp_path, "process")
    for id_ in ("a", "b"):
        store.save(samples.paused(id_))
        store.claim(id_)
    path = tmp_path / "a.inflight"
    path.write_bytes(damage(path.read_bytes()))

    assert store.recover_orphaned() == 2

    assert store.list() == ["a", "b"]
    with pytest.raises(CorruptRecord):
        store.claim("a")
    assert store.claim("b") == samples.paused("b")


def test_the_record_of_another_run_is_corrupt(tmp_path: Path) -> None:
    store = FilePausedStore(tmp_path, "process")
    store.save(samples.paused("b"))
    (tmp_path / "b.json").rename(tmp_path / "a.json")

    with pytest.raises(CorruptRecord, match="it is the record of run 'b', not of 'a'"):
        store.load("a")


FOREIGN = [b"\xff", b"\xc3\xa4\xff"]
DAMAGED = ["A", "a b", "%00", "backup~"]  # names that the store which the contract comes from gives to such ids
HIDDEN = [b".hidden", b""]


def beside_others(home: Path, name: bytes) -> FilePausedStore:
    """Open a store with one run, beside files of another program that hold no record."""
    store = FilePausedStore(home, "process")
    store.save(samples.paused("b"))
    for suffix in (b".json", b".inflight"):
        Path(str(home), (name + suffix).decode(errors="surrogateescape")).write_bytes(b"theirs")
    return store


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_neither_listed_nor_recovered_and_warned_of_once(name: bytes, tmp_path: Path) -> None:
    store = beside_others(tmp_path, name)
    before = contents(tmp_path)

    with pytest.warns(ForeignFile, match=r"holds 1 file\(s\) that no id of this store leads to: .* They are ignored"):
        assert store.list() == ["b"]
    assert store.recover_orphaned() == 0
    assert store.list() == ["b"]

    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_an_id_leads_to_is_a_damaged_record_of_it(name: str, tmp_path: Path) -> None:
    store = beside_others(tmp_path, name.encode())
    before = contents(tmp_path)

    assert store.list() == sorted([name, "b"])
    with pytest.raises(CorruptRecord, match="It was left unchanged") as error:
        store.load(name)
    assert error.value.where == str(tmp_path / f"{name}.json")
    assert contents(tmp_path) == before
    assert (store.recover_orphaned(), store.list()) == (0, sorted([name, "b"]))
    store.remove(name)
    assert (store.list(), list(contents(tmp_path))) == (["b"], ["b.json"])


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_files_of_others_are_left_alone(name: bytes, tmp_path: Path) -> None:
    store = beside_others(tmp_path, name)
    before = contents(tmp_path)

    assert store.recover_orphaned() == 0
    assert store.list() == ["b"]

    assert contents(tmp_path) == before
