from __future__ import annotations

import errno
import functools
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import CorruptRecord, samples
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, RUNS, SNAPSHOTS, Kind, contents

on_disk = settings(deadline=None, max_examples=60)
each_journal = pytest.mark.parametrize("kind", JOURNALS, ids=str)


class Grown(NamedTuple):
    """A journal after several changes: its bytes, and after each change its length and what was loaded then."""

    data: bytes
    ends: list[int]
    states: list[Any]

    def at(self, length: int) -> Any:
        """Tell what the first `length` bytes hold: every change whose line is whole."""
        whole = [state for end, state in zip(self.ends, self.states, strict=True) if end <= length]
        return whole[-1]


@functools.cache
def grown(kind: Kind, changes: int = 5) -> Grown:
    with tempfile.TemporaryDirectory() as home:
        store, path = kind.open(Path(home)), Path(home, kind.file)
        ends, states = [], []
        for n in range(changes):
            kind.change(store, "a", n)
            ends.append(path.stat().st_size)
            states.append(kind.load(store, "a"))
        return Grown(path.read_bytes(), ends, states)


@contextmanager
def folder_with(kind: Kind, data: bytes) -> Iterator[Path]:
    """Make a folder in which the file of "a" holds `data`, and "b" is a good record with item 7."""
    with tempfile.TemporaryDirectory() as home:
        kind.change(kind.open(Path(home)), "b", 7)
        Path(home, kind.file).write_bytes(data)
        yield Path(home)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def line(body: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(body), body)


@each_journal
@on_disk
@given(st.data())
def test_a_journal_cut_short_holds_every_change_whose_line_is_whole(kind: Kind, data: st.DataObject) -> None:
    journal = grown(kind)
    length = data.draw(st.integers(journal.ends[0], len(journal.data)))

    with folder_with(kind, journal.data[:length]) as home:
        assert kind.load(kind.open(home), "a") == journal.at(length)


@each_journal
@on_disk
@given(st.data())
def test_a_journal_whose_document_is_cut_short_is_corrupt(kind: Kind, data: st.DataObject) -> None:
    journal = grown(kind)
    length = data.draw(st.integers(0, journal.ends[0] - 1))

    with folder_with(kind, journal.data[:length]) as home, pytest.raises(CorruptRecord) as error:
        kind.load(kind.open(home), "a")

    assert error.value.where == str(home / kind.file)


@each_journal
@on_disk
@given(st.data())
def test_a_journal_cut_short_takes_further_changes(kind: Kind, data: st.DataObject) -> None:
    journal = grown(kind)
    length = data.draw(st.integers(journal.ends[0], len(journal.data)))

    with folder_with(kind, journal.data[:length]) as home:
        kind.change(kind.open(home), "a", 98)
        kind.change(kind.open(home), "a", 99)

        expected = [*kind.items(journal.at(length)), 98, 99]
        assert kind.items(kind.load(kind.open(home), "a")) == expected


def flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


@each_journal
@on_disk
@given(st.data())
def test_damage_before_the_last_line_is_loud_and_local(kind: Kind, data: st.DataObject) -> None:
    journal = grown(kind)
    bit = data.draw(st.integers(0, journal.ends[-2] * 8 - 1))

    with folder_with(kind, flip(journal.data, bit)) as home:
        store = kind.open(home)
        with pytest.raises(CorruptRecord) as error:
            kind.load(store, "a")
        assert error.value.where == str(home / kind.file)
        assert kind.items(kind.load(store, "b")) == [7]


@each_journal
@on_disk
@given(st.data())
def test_damage_in_the_last_line_never_gives_a_value_that_was_not_saved(kind: Kind, data: st.DataObject) -> None:
    journal = grown(kind)
    bit = data.draw(st.integers(journal.ends[-2] * 8, len(journal.data) * 8 - 1))

    with folder_with(kind, flip(journal.data, bit)) as home:
        try:
            found = kind.load(kind.open(home), "a")
        except CorruptRecord as error:
            found = error.where

        assert found in (str(home / kind.file), journal.states[-2])


@each_journal
@on_disk
@given(st.data())
def test_a_handle_that_has_read_a_journal_sees_the_same_of_what_was_added_as_one_that_has_not(
    kind: Kind, data: st.DataObject
) -> None:
    journal = grown(kind)
    first = data.draw(st.integers(journal.ends[0], len(journal.data)))
    second = data.draw(st.integers(journal.ends[0], len(journal.data)))

    with folder_with(kind, journal.data[:first]) as home:
        store = kind.open(home)
        kind.load(store, "a")
        (home / kind.file).write_bytes(journal.data[:second])

        assert kind.load(store, "a") == journal.at(second)


TORN = {
    "zeros": b"\0" * 700,
    "zeros and a line break": b"\0" * 700 + b"\n",
    "half a line": b'0badcafe {"effect":{',
    "a line with the wrong checksum": b"00000000 {}\n",
    "the end of a line": b'"}}\n',
    "a line break": b"\n",
    "no checksum": b'{"effect":null}\n',
    "no text": bytes(range(128, 256)),
}


@each_journal
@pytest.mark.parametrize("tail", TORN.values(), ids=TORN)
def test_a_torn_last_line_is_passed_over_and_cut_off_by_the_next_writer(
    kind: Kind, tail: bytes, tmp_path: Path
) -> None:
    journal = grown(kind)
    path = tmp_path / kind.file
    path.write_bytes(journal.data + tail)
    store = kind.open(tmp_path)

    assert kind.load(store, "a") == journal.states[-1]
    assert path.read_bytes() == journal.data + tail
    kind.change(store, "a", 99)

    added = path.read_bytes().removeprefix(journal.data)
    assert added == line(added[9:-1])
    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [0, 1, 2, 3, 4, 99]


@each_journal
def test_a_torn_last_line_is_passed_over_by_a_handle_that_has_read_what_is_before(kind: Kind, tmp_path: Path) -> None:
    store, path = kind.open(tmp_path), tmp_path / kind.file
    kind.change(store, "a", 1)
    with path.open("ab") as file:
        file.write(b"0badcafe {")

    assert kind.items(kind.load(store, "a")) == [1]
    kind.change(store, "a", 2)

    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [1, 2]


LOOKS_LIKE_LINES = ["deadbeef ", "deadbeef {", '{"deadbeef {', 'deadbeef {"effect":{"tool_use_id":"use-1"}}\n']


@pytest.mark.parametrize("text", LOOKS_LIKE_LINES)
def test_a_torn_line_full_of_what_looks_like_lines_is_passed_over_at_once(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = EFFECTS.open(tmp_path), tmp_path / "a.json"
    EFFECTS.change(store, "a", 1)
    with path.open("ab") as file:  # a power cut lost its first sector and kept the rest
        file.write(bytes(512) + json.dumps({text: [text, text * 1000]}, separators=(",", ":")).encode() + b"\n")
    real, summed = zlib.crc32, 0

    def crc32(data: bytes) -> int:
        nonlocal summed
        summed += len(data)
        return real(data)

    monkeypatch.setattr(zlib, "crc32", crc32)

    assert EFFECTS.items(EFFECTS.load(store, "a")) == [1]

    assert summed < 2 * path.stat().st_size


def test_a_good_line_that_is_no_change_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(grown(EFFECTS).data + line(b'{"effect":null,"at":1}'))

    with pytest.raises(CorruptRecord, match=rf"the line at offset {grown(EFFECTS).ends[-1]} is no change: effect: "):
        EFFECTS.load(EFFECTS.open(tmp_path), "a")


@each_journal
def test_damage_names_the_offset_of_the_line(kind: Kind, tmp_path: Path) -> None:
    journal = grown(kind)
    (tmp_path / kind.file).write_bytes(flip(journal.data, journal.ends[1] * 8 + 100))

    with pytest.raises(CorruptRecord, match=f"line at offset {journal.ends[1]} is damaged, and there are lines after"):
        kind.load(kind.open(tmp_path), "a")


@each_journal
def test_damage_is_loud_even_if_nothing_but_a_torn_line_follows(kind: Kind, tmp_path: Path) -> None:
    journal = grown(kind)
    (tmp_path / kind.file).write_bytes(flip(journal.data, journal.ends[-2] * 8 + 100) + b"0badcafe {")

    with pytest.raises(CorruptRecord, match=f"line at offset {journal.ends[-2]} is damaged"):
        kind.load(kind.open(tmp_path), "a")


@each_journal
def test_the_record_of_another_id_is_corrupt(kind: Kind, tmp_path: Path) -> None:
    store = kind.open(tmp_path)
    kind.change(store, "b", 1)
    name_of_b = kind.file.replace("a.j", "b.j")
    (tmp_path / kind.file).write_bytes((tmp_path / name_of_b).read_bytes())

    with pytest.raises(CorruptRecord, match=r"it is a record of '(wf/)?b', not of '(wf/)?a'") as error:
        kind.load(store, "a")
    assert error.value.where == str(tmp_path / kind.file)
    with pytest.raises(CorruptRecord):
        kind.change(store, "a", 2)
    assert kind.items(kind.load(store, "b")) == [1]


@each_journal
def test_two_handles_see_what_the_other_appends(kind: Kind, tmp_path: Path) -> None:
    stores = [kind.open(tmp_path), kind.open(tmp_path)]
    seen = []
    for n in range(150):  # past two compactions
        kind.change(stores[n % 2], "a", n)
        seen.append([kind.items(kind.load(store, "a")) for store in stores])

    assert seen == [[list(range(n + 1))] * 2 for n in range(150)]


@each_journal
def test_a_compaction_by_one_handle_is_seen_by_the_other(kind: Kind, tmp_path: Path) -> None:
    one, other = kind.open(tmp_path), kind.open(tmp_path)
    for n in range(65):
        kind.change(one, "a", n)
    kind.load(other, "a")
    kind.change(one, "a", 65)
    assert lines(tmp_path / kind.file) == 1

    assert kind.items(kind.load(other, "a")) == list(range(66))
    kind.change(other, "a", 66)
    assert kind.items(kind.load(one, "a")) == list(range(67))


@pytest.mark.parametrize("kind", [kind for kind in JOURNALS if kind.delete], ids=str)
def test_a_record_deleted_and_made_again_with_the_same_length_is_noticed(kind: Kind, tmp_path: Path) -> None:
    assert kind.delete is not None
    one, other = kind.open(tmp_path), kind.open(tmp_path)
    for n in (1, 2):
        kind.change(one, "a", n)
    kind.load(other, "a")
    length = (tmp_path / kind.file).stat().st_size

    kind.delete(one, "a")
    for n in (3, 2):  # the last line is the same too, but for the second at which it was written
        kind.change(one, "a", n)

    assert (tmp_path / kind.file).stat().st_size == length
    assert kind.items(kind.load(other, "a")) == [3, 2]


def test_a_record_saved_anew_is_noticed(tmp_path: Path) -> None:
    one, other = EFFECTS.open(tmp_path), EFFECTS.open(tmp_path)
    one.save_checkpoint(samples.checkpoint("a", agent_id="agent-1"))
    other.load_checkpoint("a")

    one.save_checkpoint(samples.checkpoint("a", agent_id="agent-2"))

    assert other.load_checkpoint("a").agent_id == "agent-2"


def without_generation(path: Path) -> list[bytes]:
    """Give the lines of a journal, with what differs between copies of it left out of the first."""
    first, *others = path.read_bytes().splitlines()
    return [first[first.index(b"document") :], *others]


def broken() -> OSError:
    return OSError(errno.EIO, "broken")


@each_journal
@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_an_append_that_fails_leaves_the_old_state_for_everybody(
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


def test_a_line_that_could_not_be_synced_is_taken_back_for_good(tmp_path: Path, calls: Calls) -> None:
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


def test_a_line_that_could_neither_be_synced_nor_copied_is_cut_off(tmp_path: Path, calls: Calls) -> None:
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


@pytest.mark.parametrize("torn", [b"", b"00000000 {"], ids=["whole", "torn"])
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


def test_the_name_of_a_copy_is_synced_by_who_synced_that_of_the_file_before(tmp_path: Path, calls: Calls) -> None:
    # Who made the copy may have died before it did so itself.
    store, other = EFFECTS.open(tmp_path, "power"), EFFECTS.open(tmp_path, "power")
    EFFECTS.change(store, "a", 1)
    calls.fail("fsync a.json", broken())
    with pytest.raises(OSError, match="broken"):
        EFFECTS.change(other, "a", 2)
    calls.start()

    EFFECTS.change(store, "a", 3)

    assert calls.of("fsync") == ["fsync a.json", "fsync a.json", f"fsync {tmp_path.name}"]


def test_a_document_alone_that_could_not_be_synced_is_copied_as_it_is(tmp_path: Path, calls: Calls) -> None:
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
                file.write(b"0badcafe {")
            raise OSError(errno.ENOSPC, "full")

    calls.before = half

    with pytest.raises(OSError, match="full"):
        kind.change(store, "a", 2)

    assert (tmp_path / kind.file).read_bytes() == before


def test_a_line_that_was_taken_back_and_replaced_by_one_as_long_is_noticed(tmp_path: Path, calls: Calls) -> None:
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
def test_a_compaction_that_fails_leaves_the_old_state_for_everybody(
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


@each_journal
@pytest.mark.parametrize(
    ("changes", "expected"), [(1, 1), (65, 65), (66, 1), (132, 67), (133, 1), (266, 134), (267, 1)]
)
def test_a_journal_is_compacted_when_changes_outnumber_its_items(
    kind: Kind, changes: int, expected: int, tmp_path: Path
) -> None:
    store = kind.open(tmp_path)

    for n in range(changes):
        kind.change(store, "a", n)

    assert lines(tmp_path / kind.file) == expected
    assert kind.items(kind.load(kind.open(tmp_path), "a")) == list(range(changes))


@each_journal
def test_one_handle_serves_more_journals_than_it_keeps(kind: Kind, tmp_path: Path) -> None:
    store = kind.open(tmp_path)
    ids = [f"run-{n}" for n in range(70)]

    for n in range(3):
        for one in ids:
            kind.change(store, one, n)

    assert [kind.items(kind.load(store, one)) for one in ids] == [[0, 1, 2]] * 70


def test_closing_a_handle_loses_nothing(tmp_path: Path) -> None:
    store = SNAPSHOTS.open(tmp_path)
    SNAPSHOTS.change(store, "a", 1)

    store.close()
    SNAPSHOTS.change(store, "a", 2)

    assert SNAPSHOTS.items(SNAPSHOTS.load(store, "a")) == [1, 2]


def test_a_document_alone_opens_takes_marks_and_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    checkpoint = samples.checkpoint("a", side_effects_log=[samples.effect("use-0")])
    path.write_text(checkpoint.to_json(indent=2))
    store = EFFECTS.open(tmp_path)

    assert EFFECTS.load(store, "a") == checkpoint
    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 2)

    assert lines(path) == 2
    assert EFFECTS.items(EFFECTS.load(EFFECTS.open(tmp_path), "a")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "document"),
    [(SNAPSHOTS, '{"workflow_id":"wf","run_id":"a"}'), (RUNS, '{"run_task_id":"a"}')],
    ids=["snapshots", "runs"],
)
def test_a_document_alone_is_damage_where_no_other_program_writes_one(
    kind: Kind, document: str, tmp_path: Path
) -> None:
    (tmp_path / kind.file).write_text(document)

    with pytest.raises(CorruptRecord, match="first line"):
        kind.load(kind.open(tmp_path), "a")


def test_a_document_alone_that_changes_is_read_again(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    for agent in ("agent-1", "agent-2"):  # of the same length
        (tmp_path / "a.json").write_text(samples.checkpoint("a", agent_id=agent).to_json())
        assert EFFECTS.load(store, "a").agent_id == agent


def test_every_line_is_a_checksum_and_json(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 2)

    first, second = (tmp_path / "a.json").read_bytes().splitlines()

    assert json.loads(first[9:])["document"]["task_id"] == "a"
    assert json.loads(second[9:])["effect"]["tool_use_id"] == "use-2"
    assert [int(found[:8], 16) for found in (first, second)] == [zlib.crc32(found[9:]) for found in (first, second)]


def test_a_reader_that_meets_a_writer_looks_again_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_wfstate.stores.file import journal as journal_module

    journal = grown(EFFECTS)
    path = tmp_path / "a.json"
    path.write_bytes(journal.data)
    mixed = [journal.data[: journal.ends[0]] + b"half of an old line" + journal.data[journal.ends[1] :]]
    real: Callable[..., bytes] = journal_module._read_at

    def read_at(fd: int, offset: int, length: int | None = None) -> bytes:
        return mixed.pop() if mixed else real(fd, offset, length)

    monkeypatch.setattr(journal_module, "_read_at", read_at)

    assert EFFECTS.load(EFFECTS.open(tmp_path), "a") == journal.states[-1]
    assert mixed == []


def test_what_is_loaded_is_not_what_the_handle_keeps(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    EFFECTS.change(store, "a", 1)

    EFFECTS.load(store, "a").side_effects_log.clear()

    assert EFFECTS.items(EFFECTS.load(store, "a")) == [1]
