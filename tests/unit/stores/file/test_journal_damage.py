"""Journals that were torn by a crash, which is repaired, or damaged, which is reported."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_wfstate import CorruptRecord
from tests.unit.stores.file.journals import each_journal, grown, line
from tests.unit.stores.file.kinds import EFFECTS, RUNS, SNAPSHOTS, Kind

on_disk = settings(deadline=None, max_examples=60)


@contextmanager
def folder_with(kind: Kind, data: bytes) -> Iterator[Path]:
    """Make a folder in which the file of "a" holds `data`, and "b" is a good record with item 7."""
    with tempfile.TemporaryDirectory() as home:
        kind.change(kind.open(Path(home)), "b", 7)
        Path(home, kind.file).write_bytes(data)
        yield Path(home)


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
def test_damage_before_the_last_line_is_reported_and_local(kind: Kind, data: st.DataObject) -> None:
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
            result = kind.load(kind.open(home), "a")
        except CorruptRecord as error:
            result = error.where

        assert result in (str(home / kind.file), journal.states[-2])


@each_journal
@on_disk
@given(st.data())
def test_a_handle_with_a_cached_journal_reads_the_same_as_a_new_one(kind: Kind, data: st.DataObject) -> None:
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
def test_a_torn_last_line_is_skipped_by_readers_and_truncated_by_the_next_writer(
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
def test_a_torn_last_line_is_skipped_by_a_handle_that_has_read_what_is_before(kind: Kind, tmp_path: Path) -> None:
    store, path = kind.open(tmp_path), tmp_path / kind.file
    kind.change(store, "a", 1)
    with path.open("ab") as file:
        file.write(b"0badcafe {")

    assert kind.items(kind.load(store, "a")) == [1]
    kind.change(store, "a", 2)

    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [1, 2]


LOOKS_LIKE_LINES = ["deadbeef ", "deadbeef {", '{"deadbeef {', 'deadbeef {"effect":{"tool_use_id":"use-1"}}\n']


@pytest.mark.parametrize("text", LOOKS_LIKE_LINES)
def test_a_torn_line_full_of_what_looks_like_lines_is_skipped_at_once(
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


def test_a_good_line_that_is_not_a_change_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(grown(EFFECTS).data + line(b'{"effect":null,"at":1}'))

    with pytest.raises(
        CorruptRecord, match=rf"the line at offset {grown(EFFECTS).ends[-1]} is not a valid change: effect: "
    ):
        EFFECTS.load(EFFECTS.open(tmp_path), "a")


@each_journal
def test_damage_names_the_offset_of_the_line(kind: Kind, tmp_path: Path) -> None:
    journal = grown(kind)
    (tmp_path / kind.file).write_bytes(flip(journal.data, journal.ends[1] * 8 + 100))

    with pytest.raises(CorruptRecord, match=f"line at offset {journal.ends[1]} is damaged, and more lines follow"):
        kind.load(kind.open(tmp_path), "a")


@each_journal
def test_damage_is_reported_even_if_nothing_but_a_torn_line_follows(kind: Kind, tmp_path: Path) -> None:
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

    with pytest.raises(CorruptRecord, match=r"it is the record of '(wf/)?b', not of '(wf/)?a'") as error:
        kind.load(store, "a")
    assert error.value.where == str(tmp_path / kind.file)
    with pytest.raises(CorruptRecord):
        kind.change(store, "a", 2)
    assert kind.items(kind.load(store, "b")) == [1]


@pytest.mark.parametrize(
    ("kind", "document"),
    [(SNAPSHOTS, '{"workflow_id":"wf","run_id":"a"}'), (RUNS, '{"run_task_id":"a"}')],
    ids=["snapshots", "runs"],
)
def test_a_bare_document_is_damage_where_no_other_program_writes_one(kind: Kind, document: str, tmp_path: Path) -> None:
    (tmp_path / kind.file).write_text(document)

    with pytest.raises(CorruptRecord, match="first line"):
        kind.load(kind.open(tmp_path), "a")
