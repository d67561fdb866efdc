"""Journals whose appends and compactions fail: the old state stands, for every handle."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pytest_wfstate import samples
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.journals import each_journal
from tests.unit.stores.file.kinds import EFFECTS, Kind, contents


def without_generation(path: Path) -> list[bytes]:
    """Return the lines of a journal without the generation, in which copies differ."""
    first, *others = path.read_bytes().splitlines()
    return [first[first.index(b"document") :], *others]


def broken() -> OSError:
    return OSError(errno.EIO, "broken")


@each_journal
@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_an_append_that_fails_leaves_the_old_state_for_every_handle(
    kind: Kind, failing: str, tmp_path: Path, calls: Calls
) -> None:
    store, other = kind.open(tmp_path, "power"), kind.open(tmp_path)
    for n in range(3):
        kind.change(store, "a", n)
    before = without_generation(tmp_path / kind.file)
    calls.fail(f"{failing} {kind.file}", broken())

    with pytest.raises(OSError, match="broken"):
        kind.change(store, "a", 3)

    assert without_generation(tmp_path / kind.file) == before
    assert [kind.items(kind.load(handle, "a")) for handle in (store, other)] == [[0, 1, 2]] * 2
    kind.change(store, "a", 3)
    assert [kind.items(kind.load(handle, "a")) for handle in (store, other)] == [[0, 1, 2, 3]] * 2


def test_a_line_that_could_not_be_synced_is_durably_removed(tmp_path: Path, calls: Calls) -> None:
    store = EFFECTS.open(tmp_path, "power")
    EFFECTS.change(store, "a", 1)
    calls.start()
    calls.fail("fsync a.json", broken())

    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(store, "a", 2)

    assert calls.of("write", "rename", "ftruncate", "fsync") == [
        "write a.json",
        "fsync a.json",
        "write a.json.tmp",
        "fsync a.json.tmp",
        "rename a.json.tmp",
        f"fsync {tmp_path.name}",
        "ftruncate a.json",
        "fsync a.json",
    ]


def test_a_line_that_could_neither_be_synced_nor_copied_is_truncated(tmp_path: Path, calls: Calls) -> None:
    store = EFFECTS.open(tmp_path, "power")
    EFFECTS.change(store, "a", 1)
    before = (tmp_path / "a.json").read_bytes()

    def full(call: str) -> None:
        if call in ("fsync a.json", "create a.json.tmp"):
            raise broken()

    calls.before = full

    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(store, "a", 2)

    assert contents(tmp_path) == {"a.json": before}


@pytest.mark.parametrize("torn", [b"", b"00000000 00000009 {"], ids=["whole", "torn"])
def test_lines_of_another_that_could_not_be_synced_are_copied(tmp_path: Path, calls: Calls, torn: bytes) -> None:
    store = EFFECTS.open(tmp_path, "power")
    EFFECTS.change(store, "a", 1)
    EFFECTS.change(EFFECTS.open(tmp_path), "a", 2)
    before = without_generation(tmp_path / "a.json")
    with (tmp_path / "a.json").open("ab") as file:
        file.write(torn)
    inode = (tmp_path / "a.json").stat().st_ino
    calls.fail("fsync a.json", broken())

    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(store, "a", 3)

    assert without_generation(tmp_path / "a.json") == before
    assert (tmp_path / "a.json").stat().st_ino != inode
    assert EFFECTS.items(EFFECTS.load(EFFECTS.open(tmp_path), "a")) == [1, 2]


def test_the_name_of_a_copy_is_synced_by_the_handle_that_synced_the_original(tmp_path: Path, calls: Calls) -> None:
    # The writer of the copy may have died before it did so itself.
    store, other = EFFECTS.open(tmp_path, "power"), EFFECTS.open(tmp_path, "power")
    EFFECTS.change(store, "a", 1)
    calls.fail("fsync a.json", broken())
    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(other, "a", 2)
    calls.start()

    EFFECTS.change(store, "a", 3)

    assert calls.of("fsync") == ["fsync a.json", "fsync a.json", f"fsync {tmp_path.name}"]


def test_a_bare_document_that_could_not_be_synced_is_copied_as_it_is(tmp_path: Path, calls: Calls) -> None:
    document = samples.checkpoint("a", completed_tool_ids={"use-1"}).to_json(indent=2)
    (tmp_path / "a.json").write_text(document)
    calls.fail("fsync a.json", broken())

    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(EFFECTS.open(tmp_path, "power"), "a", 1)

    assert contents(tmp_path) == {"a.json": document.encode()}


@each_journal
def test_a_short_write_that_then_fails_leaves_no_half_line(kind: Kind, tmp_path: Path, calls: Calls) -> None:
    store = kind.open(tmp_path)
    kind.change(store, "a", 1)
    before = (tmp_path / kind.file).read_bytes()

    def half(call: str) -> None:
        if call == f"write {kind.file}":
            calls.before = lambda _: None
            with (tmp_path / kind.file).open("ab") as file:
                file.write(b"0badcafe 00000009 {")
            raise OSError(errno.ENOSPC, "full")

    calls.before = half

    with pytest.raises(OSError, match="full"):
        kind.change(store, "a", 2)

    assert (tmp_path / kind.file).read_bytes() == before


def test_a_line_that_was_removed_and_replaced_by_one_of_its_length_is_noticed(tmp_path: Path, calls: Calls) -> None:
    store, reader = EFFECTS.open(tmp_path, "power"), EFFECTS.open(tmp_path)
    EFFECTS.change(store, "a", 1)
    seen: list[list[int]] = []

    def read_then_fail(call: str) -> None:
        if call == "fsync a.json":
            calls.before = lambda _: None
            seen.append(EFFECTS.items(EFFECTS.load(reader, "a")))
            raise broken()

    calls.before = read_then_fail
    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(store, "a", 2)
    EFFECTS.change(store, "a", 3)

    assert seen == [[1, 2]]
    assert EFFECTS.items(EFFECTS.load(reader, "a")) == [1, 3]


@each_journal
@pytest.mark.parametrize("failing", ["create", "write", "fsync", "rename"])
def test_a_compaction_that_fails_leaves_the_old_state_for_every_handle(
    kind: Kind, failing: str, tmp_path: Path, calls: Calls
) -> None:
    store, other = kind.open(tmp_path, "power"), kind.open(tmp_path)
    for n in range(65):
        kind.change(store, "a", n)
    calls.fail(f"{failing} {kind.file}.tmp", broken())

    with pytest.raises(OSError, match="broken"):
        kind.change(store, "a", 65)

    assert [kind.items(kind.load(handle, "a")) for handle in (store, other)] == [list(range(65))] * 2
    kind.change(store, "a", 66)
    assert [kind.items(kind.load(handle, "a")) for handle in (store, other)] == [[*range(65), 66]] * 2
