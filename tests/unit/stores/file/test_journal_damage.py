"""Journals that were torn by a crash, which is repaired, or damaged, which is reported."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
def test_every_flipped_bit_of_the_last_line_is_reported(kind: Kind, tmp_path: Path) -> None:
    journal, path = grown(kind), tmp_path / kind.file
    store = kind.open(tmp_path)
    bits = range(journal.ends[-2] * 8, len(journal.data) * 8)

    def shown(bit: int) -> Any:
        path.write_bytes(flip(journal.data, bit))
        store.close()  # so that it reads the whole file again
        try:
            return kind.load(store, "a")
        except CorruptRecord as error:
            return error.where

    assert [bit for bit in bits if shown(bit) != str(path)] == []


@each_journal
def test_a_change_is_not_appended_to_a_journal_whose_last_line_is_damaged(kind: Kind, tmp_path: Path) -> None:
    journal, path = grown(kind), tmp_path / kind.file
    path.write_bytes(flip(journal.data, journal.ends[-1] * 8 - 100))
    before = path.read_bytes()

    with pytest.raises(CorruptRecord, match=f"line at offset {journal.ends[-2]} is damaged, and no crash leaves it so"):
        kind.change(kind.open(tmp_path), "a", 9)

    assert path.read_bytes() == before


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


LINE = line(b'{"effect":{"tool_use_id":"use-9","tool_name":"%s"}}' % (b"x" * 2000))


def lost(offset: int, *sectors: int) -> bytes:
    """Return a line at `offset` after a power cut: some sectors of the file, counted from there on, are zeros."""
    torn = bytearray(LINE)
    first = 512 - offset % 512
    for sector in sectors:
        start = max(0, first + (sector - 1) * 512)
        end = min(len(LINE), first + sector * 512)
        torn[start:end] = bytes(end - start)
    return bytes(torn)


TORN: dict[str, Callable[[int], bytes]] = {
    "no more than zeros": lambda _: bytes(700),
    "half a head": lambda _: LINE[:12],
    "a head": lambda _: LINE[:18],
    "half a line": lambda _: LINE[:700],
    "all but the line break": lambda _: LINE[:-1],
    "the first sector lost": lambda offset: lost(offset, 0),
    "the last sector lost": lambda offset: lost(offset, 3, 4),
    "sectors lost in between": lambda offset: lost(offset, 1, 3),
    "a short line with lost sectors": lambda offset: lost(offset, 0, 1)[:900],
}

DAMAGED: dict[str, bytes] = {
    "a line with the wrong checksum": b"00000000" + LINE[8:],
    "a line with the wrong length": LINE[:9] + b"00000001" + LINE[17:],
    "a line that is longer than it says": LINE[:-1] + b"x\n",
    "the end of a line": b'"}}\n',
    "a line break": b"\n",
    "no checksum": b'{"effect":null}\n',
    "half a line without a head": b'{"effect":nul',
    "no text": bytes(range(128, 256)),
    "one zero": LINE[:40] + b"\0" + LINE[41:],
    "zeros up to no border": LINE[:40] + bytes(900) + LINE[940:],
    "a line without its break": LINE[:-1] + b"x",
    "zeros and a line break": bytes(700) + b"\n",
}


@each_journal
@pytest.mark.parametrize("tail", DAMAGED.values(), ids=DAMAGED)
def test_a_last_line_that_no_crash_leaves_is_reported(kind: Kind, tail: bytes, tmp_path: Path) -> None:
    journal = grown(kind)
    (tmp_path / kind.file).write_bytes(journal.data + tail)

    with pytest.raises(CorruptRecord, match=f"the line at offset {len(journal.data)} is damaged"):
        kind.load(kind.open(tmp_path), "a")


@each_journal
@pytest.mark.parametrize("tail", TORN.values(), ids=TORN)
def test_a_torn_last_line_is_skipped_by_readers_and_truncated_by_the_next_writer(
    kind: Kind, tail: Callable[[int], bytes], tmp_path: Path
) -> None:
    journal = grown(kind)
    path = tmp_path / kind.file
    torn = journal.data + tail(len(journal.data))
    path.write_bytes(torn)
    store = kind.open(tmp_path)

    assert kind.load(store, "a") == journal.states[-1]
    assert path.read_bytes() == torn
    kind.change(store, "a", 99)

    added = path.read_bytes().removeprefix(journal.data)
    assert added == line(added[18:-1])
    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [0, 1, 2, 3, 4, 99]


@each_journal
def test_a_torn_last_line_is_skipped_by_a_handle_that_has_read_what_is_before(kind: Kind, tmp_path: Path) -> None:
    store, path = kind.open(tmp_path), tmp_path / kind.file
    kind.change(store, "a", 1)
    with path.open("ab") as file:
        file.write(LINE[:700])

    assert kind.items(kind.load(store, "a")) == [1]
    kind.change(store, "a", 2)

    assert kind.items(kind.load(kind.open(tmp_path), "a")) == [1, 2]


LOOKS_LIKE_LINES = [
    "deadbeef ",
    "deadbeef 00000009 {",
    '{"deadbeef {',
    'deadbeef {"effect":{"tool_use_id":"use-1"}}\\n',
]


@pytest.mark.parametrize("text", LOOKS_LIKE_LINES)
@pytest.mark.parametrize("damage", [lambda line_: line_, lambda line_: line_[:-2] + b" \n"], ids=["good", "bad"])
def test_a_long_line_full_of_what_looks_like_lines_is_read_in_one_pass(
    text: str, damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = EFFECTS.open(tmp_path), tmp_path / "a.json"
    EFFECTS.change(store, "a", 1)
    with path.open("ab") as file:
        file.write(damage(line(json.dumps({text: [text, text * 50_000]}, separators=(",", ":")).encode())))
    real, summed = zlib.crc32, 0

    def crc32(data: bytes) -> int:
        nonlocal summed
        summed += len(data)
        return real(data)

    monkeypatch.setattr(zlib, "crc32", crc32)

    with pytest.raises(CorruptRecord):
        EFFECTS.load(EFFECTS.open(tmp_path), "a")

    assert path.stat().st_size > 400_000
    assert summed < 3 * path.stat().st_size  # without the lock, and once more under it


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

    with pytest.raises(CorruptRecord, match=f"line at offset {journal.ends[1]} is damaged, and no crash leaves it so"):
        kind.load(kind.open(tmp_path), "a")


@each_journal
def test_damage_is_reported_even_if_nothing_but_a_torn_line_follows(kind: Kind, tmp_path: Path) -> None:
    journal = grown(kind)
    (tmp_path / kind.file).write_bytes(flip(journal.data, journal.ends[-2] * 8 + 100) + LINE[:30])

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
