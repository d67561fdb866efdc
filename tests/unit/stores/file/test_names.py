from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_wfstate import samples
from pytest_wfstate.stores.file.names import is_shortened, only_id, stem
from tests.unit.stores.file.kinds import EFFECTS, contents
from tests.unit.values import LONG, TRICKY_IDS, id_pairs, ids

SUFFIXES = [".json", ".json.tmp", ".inflight", ".lease", ".journal", ".journal.tmp"]
RESERVED = ["con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(10))]


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("run-1", "run-1"),
        ("task_a", "task_a"),
        ("0f-_9", "0f-_9"),
        ("Run", "%52un"),
        ("a/b", "a%2Fb"),
        ("a.b", "a%2Eb"),
        ("a b", "a%20b"),
        ("a~b", "a%7Eb"),
        ("%2F", "%252%46"),
        ("..", "%2E%2E"),
        ("../x", "%2E%2E%2Fx"),
        ("/etc/x", "%2Fetc%2Fx"),
        ("é", "%C3%A9"),
        ("con", "%63on"),
        ("com1", "%63om1"),
        ("console", "console"),
    ],
)
def test_a_name_is_the_id_with_all_but_plain_characters_encoded(id_: str, name: str) -> None:
    assert stem(id_) == name


def test_the_ids_of_a_name_are_joined_by_a_dot() -> None:
    assert stem("wf", "run-1") == "wf.run-1"


@given(st.lists(ids | st.sampled_from(TRICKY_IDS), min_size=1, max_size=2))
def test_a_name_stays_in_its_folder_on_every_system(parts: list[str]) -> None:
    assert re.fullmatch(r"[a-z0-9_%A-F-][a-z0-9_%A-F.~-]*", stem(*parts))


@given(ids)
def test_an_id_is_read_back_from_its_name(id_: str) -> None:
    assert only_id(stem(id_)) == id_


@given(id_pairs)
def test_two_ids_have_two_names_where_case_does_not_count(pair: tuple[str, str]) -> None:
    assert stem(pair[0]).casefold() != stem(pair[1]).casefold()


@given(id_pairs, st.text("xX", min_size=300, max_size=300))
def test_two_long_ids_have_two_names_where_case_does_not_count(pair: tuple[str, str], long: str) -> None:
    assert stem(long + pair[0]).casefold() != stem(long + pair[1]).casefold()


@given(st.tuples(ids, ids), st.tuples(ids, ids))
def test_two_pairs_of_ids_have_two_names(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (stem(*one).casefold() == stem(*other).casefold()) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b.c"), ("a.b", "c")),
        (("a.b",), ("a", "b")),
        (("a" * 600, "b" * 600), ("a" * 601, "b" * 599)),
        (("a", "b" * 600), ("a.", "b" * 599)),
        ((LONG,), (LONG[:-1] + "X",)),
    ],
)
def test_ids_that_look_alike_have_names_that_differ(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert stem(*one).casefold() != stem(*other).casefold()


@pytest.mark.parametrize("name", RESERVED)
def test_no_name_is_reserved_by_windows(name: str) -> None:
    assert stem(name).lower() not in RESERVED
    assert only_id(stem(name)) == name


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "parts",
    [
        (LONG,),
        ("X" * 1024,),
        ("你" * 1024,),
        ("x" * 230,),
        ("x" * 231,),
        ("X" * 77,),
        (LONG, LONG),
        ("x" * 114, "y" * 115),
    ],
    ids=lambda parts: f"{len(parts)}x{len(parts[0])}{parts[0][0]}",
)
def test_a_name_fits_in_255_bytes_with_every_suffix(parts: tuple[str, ...], suffix: str) -> None:
    assert len((stem(*parts) + suffix).encode()) <= 255


@pytest.mark.parametrize(
    ("id_", "expected"), [("x" * 230, False), ("x" * 231, True), ("X" * 77, True), ("x~" * 9, False)]
)
def test_only_a_name_that_is_too_long_is_shortened(id_: str, expected: bool) -> None:
    assert is_shortened(stem(id_)) is expected


@pytest.mark.parametrize("id_", [LONG, "你" * 1024, "x" * 231])
def test_an_id_cannot_be_read_back_from_a_shortened_name(id_: str) -> None:
    assert only_id(stem(id_)) is None


@pytest.mark.parametrize(
    "name",
    ["", "A", "a b", "a.b", ".run-1", "%2e", "%61", "con", "%", "a%2", "%FF", "%00", "é", "\udcff", "a~b", "x" * 231],
)
def test_a_name_that_no_store_wrote_has_no_id(name: str) -> None:
    assert only_id(name) is None
    assert not is_shortened(name)


def test_special_characters_do_not_reach_into_another_folder(tmp_path: Path) -> None:
    """Seed 000: fs_checkpoint_path_sanitizes_special_chars."""
    store = EFFECTS.open(tmp_path / "store")
    for task_id in ["proj/task.1 final", "../outside", "/absolute"]:
        store.save_checkpoint(samples.checkpoint(task_id))
    assert store.load_checkpoint("proj/task.1 final").task_id == "proj/task.1 final"
    assert len(contents(tmp_path / "store")) == 3
    assert os.listdir(tmp_path) == ["store"]
