"""Times of rebuilt files: code that sorts by them sees the order in which the workload modified the files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from pytest_wfstate import Crash, Disk, Race
from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.home import Home, memory_home


def by_time(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir()), key=lambda name: (folder / name).stat().st_mtime)


def newest(home: Path, text: str) -> None:
    """Overwrite the older of two files, so that the newer is the one that a reader takes."""
    older = min(("b", "a"), key=lambda name: (home / name).stat().st_mtime_ns)
    (home / older).write_text(text)


@pytest.fixture
def disks() -> list[list[str]]:
    return []


@pytest.mark.parametrize("model", ["kill", "posix"])
def test_files_are_as_old_as_their_last_change_that_was_kept(
    crash: Crash, model: Model, disks: list[list[str]]
) -> None:
    def workload(home: Path) -> None:
        for name in ("c", "a", "b"):
            (home / name).write_text("1")
        os.sync()
        (home / "c").write_text("22")

    crash.explore(workload, lambda disk: disks.append(by_time(disk.home)), model=model)
    assert ["c", "a", "b"] in disks  # the last write was lost
    assert ["a", "b", "c"] in disks
    assert ["a", "c", "b"] not in disks


def test_a_rename_keeps_the_time_of_the_file(crash: Crash) -> None:
    def workload(home: Path) -> None:
        (home / "b").write_text("1")
        (home / "a").write_text("1")
        os.rename(home / "b", home / "c")

    def check(disk: Disk) -> None:
        names = by_time(disk.home)
        assert "c" not in names or names == ["c", "a"]

    crash.explore(workload, check, model="kill")


def test_a_folder_is_as_old_as_the_last_change_of_its_names(crash: Crash, disks: list[list[str]]) -> None:
    def workload(home: Path) -> None:
        for folder in ("first", "second"):
            (home / folder).mkdir()
        (home / "first" / "file").touch()
        (home / "first" / "file").write_text("not a change of names")

    crash.explore(workload, lambda disk: disks.append(by_time(disk.home)), model="kill")
    assert disks[0] == ["second", "first"]  # that of the uninterrupted run


def test_what_setup_left_is_older_and_keeps_its_order(crash: Crash, disks: list[list[str]]) -> None:
    def setup(home: Path) -> None:
        for seconds, name in enumerate(("z", "y", "x")):
            (home / name).touch()
            os.utime(home / name, (seconds, seconds))

    crash.explore(
        lambda home: (home / "y").write_text("1"),
        lambda disk: disks.append(by_time(disk.home)),
        setup=setup,
        model="kill",
    )
    assert {tuple(names) for names in disks} == {("z", "y", "x"), ("z", "x", "y")}


def test_what_recovery_writes_is_newer(crash: Crash) -> None:
    def check(disk: Disk) -> None:
        names = by_time(disk.home)
        assert "recovered" not in names or names[-1] == "recovered"
        (disk.home / "recovered").write_text("1")

    crash.explore(lambda home: (home / "a").write_text("1"), check, depth=2, model="kill")


def test_a_store_that_takes_turns_by_time_is_judged_on_its_own_order(crash: Crash) -> None:
    def setup(home: Path) -> None:
        for name in ("a", "b"):
            (home / name).write_text("0")

    def workload(home: Path) -> None:
        for text in "123":
            newest(home, text)
            os.sync()
            crash.ack(text)

    def check(disk: Disk) -> None:
        texts = [(disk.home / name).read_text() for name in by_time(disk.home)]
        assert texts[-1] >= max(disk.acked, default="0") or texts[-1] == ""

    crash.explore(workload, check, setup=setup, model="kill")


def test_clients_of_a_race_find_the_times_that_setup_left(race: Race) -> None:
    def setup(home: Path) -> None:
        for seconds, name in enumerate(("b", "a")):
            (home / name).touch()
            os.utime(home / name, (seconds, seconds))

    result = race.explore(
        setup, [by_time, by_time], lambda outcome: _all_equal(outcome.results, ["b", "a"]), preemptions=1
    )
    assert result.tried > 1


def _all_equal(results: tuple[list[str], ...], expected: list[str]) -> None:
    assert [result == expected for result in results] == [True] * len(results)


def test_an_image_builds_the_same_home_again() -> None:
    with memory_home() as home, memory_home() as other:
        (home.path / "folder").mkdir()
        (home.path / "folder" / "file").write_bytes(b"1")
        os.link(home.path / "folder" / "file", home.path / "link")
        os.symlink("nowhere", home.path / "symlink")
        os.utime(home.path / "link", (1, 1))
        os.chmod(home.path / "link", 0o600)
        os.chmod(home.path / "folder", 0o500)
        os.chmod(home.path, 0o700)
        with contextlib.suppress(OSError):  # not every system keeps them in memory
            os.setxattr(home.path / "link", "user.name", b"value")
        image = home.image()
        assert [image.modes[path] for path in ("link", "folder", ".")] == [0o600, 0o500, 0o700]
        Home(other.path).build(*image)
        assert other.image() == image
