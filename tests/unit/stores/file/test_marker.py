"""The marker of a folder: it keeps stores of other contracts and of other releases out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import CorruptRecord, Crash, Disk, FilePausedStore, NewerSchema, WrongContract, samples
from pytest_wfstate.faults.bounds import Model
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.kinds import EFFECTS, KINDS, MARKER, PAUSED, RESUME, RUNS, SNAPSHOTS, Kind, contents

each = pytest.mark.parametrize("kind", KINDS, ids=str)
OTHERS = [(EFFECTS, PAUSED), (PAUSED, RESUME), (RESUME, EFFECTS), (SNAPSHOTS, RUNS), (RUNS, SNAPSHOTS)]

CALLS: list[tuple[str, Kind, Callable[[Any], Any]]] = [
    *((f"{kind} load", kind, lambda store, kind=kind: kind.load(store, "a")) for kind in KINDS),
    *((f"{kind} change", kind, lambda store, kind=kind: kind.change(store, "a", 1)) for kind in KINDS),
    *((f"{kind} delete", kind, lambda store, kind=kind: kind.delete(store, "a")) for kind in KINDS if kind.delete),
    ("list", PAUSED, lambda store: store.list()),
    ("claim", PAUSED, lambda store: store.claim("a")),
    ("complete", PAUSED, lambda store: store.complete("a")),
    ("recover", PAUSED, lambda store: store.recover_orphaned()),
    ("fork", SNAPSHOTS, lambda store: store.fork(samples.key("a", 1))),
]
each_call = pytest.mark.parametrize(("kind", "act"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS])


def write_marker(home: Path, **fields: Any) -> None:
    (home / MARKER).write_text(json.dumps(fields) + "\n")


@each
def test_the_first_save_says_what_the_folder_holds(kind: Kind, tmp_path: Path) -> None:
    kind.change(kind.open(tmp_path), "a", 1)

    assert (tmp_path / MARKER).read_text() == f'{{"contract":"{kind.name}","format":1}}\n'


@each_call
def test_a_folder_of_another_contract_is_refused(kind: Kind, act: Callable[[Any], Any], tmp_path: Path) -> None:
    other = {mine.name: theirs for mine, theirs in OTHERS}[kind.name]
    other.change(other.open(tmp_path), "b", 1)
    before = contents(tmp_path)

    with pytest.raises(WrongContract, match=f"holds a store of the contract '{other}', not '{kind}'") as error:
        act(kind.open(tmp_path))

    assert str(tmp_path) in str(error.value)
    assert contents(tmp_path) == before


@each_call
def test_a_folder_of_a_later_release_is_refused(kind: Kind, act: Callable[[Any], Any], tmp_path: Path) -> None:
    kind.change(kind.open(tmp_path), "a", 1)
    write_marker(tmp_path, contract=kind.name, format=2, more="of the future")
    before = contents(tmp_path)

    with pytest.raises(NewerSchema, match=r"format 2 of a later release; this one knows format 1\. .* Upgrade"):
        act(kind.open(tmp_path))

    assert contents(tmp_path) == before


@each_call
def test_a_marker_that_cannot_be_read_is_reported(kind: Kind, act: Callable[[Any], Any], tmp_path: Path) -> None:
    kind.change(kind.open(tmp_path), "a", 1)
    (tmp_path / MARKER).write_text('{"contract":1}\n')

    with pytest.raises(CorruptRecord, match="it should say what the folder holds") as error:
        act(kind.open(tmp_path))

    assert error.value.where == str(tmp_path / MARKER)


TORN: dict[str, Callable[[bytes], bytes | None]] = {
    "none": lambda _: None,
    "empty": lambda _: b"",
    "short": lambda marker: marker[:15],
    "almost whole": lambda marker: marker[:-2],
    "zeros": lambda marker: bytes(len(marker)),
    "short, then zeros": lambda marker: marker[:15].ljust(len(marker), b"\0"),
}


@each
@pytest.mark.parametrize("torn", TORN.values(), ids=list(TORN))
def test_a_folder_without_a_marker_is_accepted_and_gets_one(
    kind: Kind, torn: Callable[[bytes], bytes | None], tmp_path: Path
) -> None:
    kind.change(kind.open(tmp_path), "a", 1)
    marker = (tmp_path / MARKER).read_bytes()
    (tmp_path / MARKER).unlink()
    left = torn(marker)
    if left is not None:
        (tmp_path / MARKER).write_bytes(left)
    store = kind.open(tmp_path)

    assert kind.items(kind.load(store, "a")) == [1]
    kind.change(store, "b", 2)

    assert (tmp_path / MARKER).read_bytes() == marker


@each_call
def test_a_marker_without_its_line_break_is_read(kind: Kind, act: Callable[[Any], Any], tmp_path: Path) -> None:
    """An editor may have saved it so."""
    other = {mine.name: theirs for mine, theirs in OTHERS}[kind.name]
    other.change(other.open(tmp_path), "b", 1)
    marker = (tmp_path / MARKER).read_bytes().rstrip(b"\n")
    (tmp_path / MARKER).write_bytes(marker)

    with pytest.raises(WrongContract):
        act(kind.open(tmp_path))
    other.change(other.open(tmp_path), "c", 1)

    assert (tmp_path / MARKER).read_bytes() == marker


def test_a_newer_marker_without_its_line_break_is_read(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"contract":"paused","format":2}')

    with pytest.raises(NewerSchema):
        PAUSED.change(PAUSED.open(tmp_path), "a", 1)


OTHERS_TORN = [b'{"contract":"effe', b'{"contract":"runs","format":1', b"\0\0x\0", b"notes", b" "]


@pytest.mark.parametrize("left", OTHERS_TORN)
def test_what_no_crash_leaves_of_its_marker_is_reported_and_kept(left: bytes, tmp_path: Path) -> None:
    (tmp_path / MARKER).write_bytes(left)

    with pytest.raises(CorruptRecord, match="it should say what the folder holds"):
        PAUSED.load(PAUSED.open(tmp_path), "a")
    with pytest.raises(CorruptRecord, match="it should say what the folder holds"):
        PAUSED.change(PAUSED.open(tmp_path), "a", 1)

    assert (tmp_path / MARKER).read_bytes() == left


@each
def test_a_folder_that_was_removed_is_marked_again(kind: Kind, tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = kind.open(home)
    kind.change(store, "a", 1)
    for path in home.iterdir():
        path.unlink()
    home.rmdir()

    kind.change(store, "a", 1)

    assert (home / MARKER).exists()


@each
def test_a_marker_costs_one_fsync_in_the_life_of_a_folder(kind: Kind, tmp_path: Path, calls: Calls) -> None:
    home = tmp_path / "home"
    for n in range(3):
        kind.change(kind.open(home, "power"), f"run-{n}", 1)

    assert [call for call in calls.of("fsync") if MARKER in call] == [f"fsync {MARKER}.tmp"]


def test_a_run_can_be_deleted_from_a_folder_that_cannot_be_marked(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "a.json").write_text(samples.paused("a").to_json())

    FilePausedStore(tmp_path).remove("a")

    assert [call for call in calls.all if MARKER in call] == []


@pytest.mark.parametrize("model", ["kill", "ext4", "xfs", "posix"])
@pytest.mark.parametrize("durability", ["power", "process"])
def test_no_crash_leaves_a_folder_that_is_refused(crash: Crash, model: Model, durability: str) -> None:
    def workload(home: Path) -> None:
        PAUSED.change(PAUSED.open(home / "store", durability), "a", 1)
        crash.ack("saved")

    def check(disk: Disk) -> None:
        home = disk.home / "store"
        if disk.acked and (durability == "power" or model == "kill"):
            assert PAUSED.items(PAUSED.load(PAUSED.open(home), "a")) == [1]
        PAUSED.change(PAUSED.open(home), "b", 2)
        assert PAUSED.items(PAUSED.load(PAUSED.open(home), "b")) == [2]
        with pytest.raises(WrongContract):
            RESUME.load(RESUME.open(home), "b")

    crash.explore(workload, check, model=model, depth=2)
