"""Journals: their format, compaction, and what handles see of each other's changes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import samples
from pytest_wfstate.stores.file import journal as journal_module
from pytest_wfstate.stores.file.journal import Journal
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.journals import each_journal, grown, lines
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, Kind


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


def test_a_record_saved_again_is_noticed(tmp_path: Path) -> None:
    one, other = EFFECTS.open(tmp_path), EFFECTS.open(tmp_path)
    one.save_checkpoint(samples.checkpoint("a", agent_id="agent-1"))
    other.load_checkpoint("a")

    one.save_checkpoint(samples.checkpoint("a", agent_id="agent-2"))

    assert other.load_checkpoint("a").agent_id == "agent-2"


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
def test_a_handle_serves_more_journals_than_it_caches(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_CACHED_BYTES", 5_000)
    monkeypatch.setattr(journal_module, "_DURABLE_BYTES", 5_000)
    store = kind.open(tmp_path)
    ids = [f"run-{n}" for n in range(70)]

    for n in range(3):
        for run_id in ids:
            kind.change(store, run_id, n)

    assert [kind.items(kind.load(store, run_id)) for run_id in ids] == [[0, 1, 2]] * 70


@each_journal
@pytest.mark.parametrize("count", [10, 1_000])
def test_a_change_reads_no_more_when_many_runs_take_turns(
    kind: Kind, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kind.open(tmp_path)
    for n in range(3):
        for run in range(count):
            kind.change(store, f"run-{run}", n)
    read: list[object] = []
    real = Journal._first

    def first(self: Any, data: bytes, where: object) -> Any:
        read.append(where)
        return real(self, data, where)

    monkeypatch.setattr(Journal, "_first", first)

    for run in range(count):
        kind.change(store, f"run-{run}", 3)

    assert read == []


def test_a_mark_takes_one_fsync_when_many_tasks_take_turns(tmp_path: Path, calls: Calls) -> None:
    store = EFFECTS.open(tmp_path, "power")
    for n in range(2):
        for task in range(100):
            EFFECTS.change(store, f"task-{task}", n)
    calls.start()

    for task in range(100):
        EFFECTS.change(store, f"task-{task}", 2)

    assert calls.of("fsync") == [f"fsync task-{task}.json" for task in range(100)]


def test_a_bare_document_opens_and_becomes_a_journal_with_the_first_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    checkpoint = samples.checkpoint("a", side_effects_log=[samples.effect("use-0")])
    path.write_text(checkpoint.to_json(indent=2))
    store = EFFECTS.open(tmp_path)

    assert EFFECTS.load(store, "a") == checkpoint
    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 2)

    assert lines(path) == 2
    assert EFFECTS.items(EFFECTS.load(EFFECTS.open(tmp_path), "a")) == [0, 1, 2]


def test_a_bare_document_that_changes_is_read_again(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    for agent in ("agent-1", "agent-2"):  # of the same length
        (tmp_path / "a.json").write_text(samples.checkpoint("a", agent_id=agent).to_json())
        assert EFFECTS.load(store, "a").agent_id == agent


def test_every_line_is_a_checksum_a_length_and_json(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 2)

    first, second = (tmp_path / "a.json").read_bytes().splitlines()

    assert json.loads(first[18:])["document"]["task_id"] == "a"
    assert json.loads(second[18:])["effect"]["tool_use_id"] == "use-2"
    assert [int(text[:8], 16) for text in (first, second)] == [zlib.crc32(text[18:]) for text in (first, second)]
    assert [int(text[9:17], 16) for text in (first, second)] == [len(text[18:]) for text in (first, second)]


def test_a_reader_that_meets_a_writer_reads_again_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_is_loaded_is_not_what_the_handle_caches(tmp_path: Path) -> None:
    store = EFFECTS.open(tmp_path)
    EFFECTS.change(store, "a", 1)

    EFFECTS.load(store, "a").side_effects_log.clear()

    assert EFFECTS.items(EFFECTS.load(store, "a")) == [1]
