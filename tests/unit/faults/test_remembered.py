"""Remembered failures: one small file for each test, which other processes and read-only folders do not break."""

from __future__ import annotations

import concurrent.futures
import os
from pathlib import Path

import pytest

from pytest_wfstate.faults import remembered
from pytest_wfstate.faults.remembered import Remembered
from pytest_wfstate.faults.replay_id import ReplayId

TEST = "tests/test_store.py::TestStore::test_it[a b/c]"


def some_id(number: int) -> str:
    return f"posix-{number}-0-83dea0de"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "corpus"


@pytest.fixture
def failures(folder: Path) -> Remembered:
    return Remembered(TEST, folder, lambda: folder.mkdir(exist_ok=True))


def ids(failures: Remembered) -> list[str]:
    return list(map(str, failures.ids()))


def test_nothing_failed_at_first(failures: Remembered, folder: Path) -> None:
    assert ids(failures) == []
    assert not folder.exists()


def test_the_last_failure_comes_first(failures: Remembered) -> None:
    for number in (1, 2, 3, 1):
        failures.add(some_id(number))
    assert ids(failures) == [some_id(1), some_id(3), some_id(2)]


def test_of_many_the_oldest_are_dropped(failures: Remembered) -> None:
    for number in range(20):
        failures.add(some_id(number))
    assert ids(failures) == [some_id(number) for number in range(19, 3, -1)]


def test_a_test_that_forgets_all_leaves_no_file(failures: Remembered, folder: Path) -> None:
    failures.add(some_id(1))
    failures.add(some_id(2))
    failures.drop(ReplayId.read(some_id(1)))
    assert ids(failures) == [some_id(2)]
    failures.drop(ReplayId.read(some_id(2)))
    assert list(folder.iterdir()) == []


def test_each_test_has_its_own(failures: Remembered, folder: Path) -> None:
    failures.add(some_id(1))
    assert Remembered(TEST.replace("/c", "-c"), folder).ids() == []


def test_a_file_names_its_test_and_holds_an_id_per_line(failures: Remembered, folder: Path) -> None:
    failures.add(some_id(1))
    (file,) = folder.iterdir()
    assert file.name.startswith("tests-test_store.py-TestStore-test_it-a-b-c")
    assert file.read_text().splitlines() == [
        f"# What failed in {TEST}, the last first. pytest-wfstate tries it before anything else.",
        some_id(1),
    ]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"<<<<<<< ours\nposix-1-0-83dea0de\n", b"posix-1-0\n"])
def test_what_is_not_an_id_is_ignored(failures: Remembered, folder: Path, content: bytes) -> None:
    failures.add(some_id(2))
    (file,) = folder.iterdir()
    file.write_bytes(content)
    assert ids(failures) == ([some_id(1)] if b"83dea0de" in content else [])


def test_a_folder_that_cannot_be_written_to_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "corpus"
    failures = Remembered(TEST, folder, lambda: folder.mkdir(parents=True))
    failures.add(some_id(1))
    assert ids(failures) == []


def test_without_a_folder_nothing_is_remembered() -> None:
    failures = Remembered()
    failures.add(some_id(1))
    assert failures.ids() == []


def test_processes_that_write_at_once_leave_a_whole_file(failures: Remembered, folder: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: failures.add(some_id(number)), range(40)))
    assert ids(failures)
    assert len(list(folder.iterdir())) == 1


def test_of_many_files_the_oldest_are_removed(
    folder: Path, failures: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "_MOST_FILES", 3)
    for number in range(4):
        Remembered(f"test_{number}", folder, failures.make_folder).add(some_id(number))
        (file,) = folder.glob(f"test_{number}-*")
        os.utime(file, (number, number))
    failures.add(some_id(1))
    assert sorted(file.name[:6] for file in folder.iterdir()) == ["test_2", "test_3", "tests-"]
