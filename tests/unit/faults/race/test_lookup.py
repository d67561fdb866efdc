"""Paths out of home: what clients share in the folder around it is scheduled, too, and put back for each schedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from tests.unit.faults.race.file_racing import explored, results


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        yield home


def create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))


def mkdir(path: Path) -> None:
    """Not os.mkdir itself: what a parameter holds makes each exploration of the session search the heap."""
    path.mkdir()


def link(path: Path) -> None:
    (path.parent / f"{os.getpid()}").touch()
    os.link(path.parent / f"{os.getpid()}", path)


@pytest.mark.parametrize("path", ["data", "link", "store/n", "linked/n", "home/link", "home/linked/n"])
def test_a_lost_update_beside_home_is_found(home: Home, path: str) -> None:
    base = home.path.parent
    (base / "store").mkdir()
    for file in ("data", "store/n"):
        (base / file).write_text("0")
    for folder in (base, home.path):
        (folder / "link").symlink_to(base / "data")
        (folder / "linked").symlink_to(os.path.relpath(base / "store", folder))

    def add(home: Path) -> int:
        number = int((home.parent / path).read_text() or -9)
        (home.parent / path).write_text(str(number + 1))
        return number

    assert results(home, add, add, preemptions=1) >= {(0, 1), (1, 0), (0, 0)}


@pytest.mark.parametrize("lock", [mkdir, create, link])
def test_a_lock_file_beside_home_can_be_tried_in_vain(home: Home, lock: Callable[[Path], None]) -> None:
    def trying(home: Path) -> bool:
        try:
            lock(home.parent / "lock")
        except FileExistsError:
            return False
        os.rename(home.parent / "lock", home.parent / f"old-{os.getpid()}")
        return True

    assert results(home, trying, trying, preemptions=1) == {(True, True), (True, False), (False, True)}


def test_what_is_beside_home_is_put_back(home: Home) -> None:
    (home.path.parent / "store").mkdir()
    (home.path.parent / "store/n").write_text("0")

    def client(home: Path) -> list[str]:
        found = sorted(str(path.relative_to(home.parent)) for path in home.parent.rglob("*"))
        (home.parent / "left").touch()
        (home.parent / "store/n").unlink()
        return found

    first, second = (run for run, _ in explored(home, client, lambda home: (home / "n").exists(), preemptions=0))
    assert first.results[0] == second.results[0] == ["home", "store", "store/n"]


def write(path: Path) -> None:
    path.write_text("1")


def overwrite(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    os.write(fd, b"1")
    os.close(fd)


def look(path: Path) -> None:
    path.read_text()


OUTSIDE = "{}, which a link in home leads to. It is not put back before each schedule: keep it below home"


@pytest.mark.parametrize(("use", "is_noted"), [(write, True), (overwrite, True), (look, False)])
def test_a_change_far_from_home_is_noted_if_a_link_leads_there(
    home: Home, tmp_path: Path, use: Callable[[Path], Any], is_noted: bool
) -> None:
    (tmp_path / "n").write_text("0")
    (home.path / "link").symlink_to(tmp_path / "n")
    ((run, _),) = explored(home, lambda home: use(home / "link"), preemptions=0)
    assert run.unseen == ([OUTSIDE.format(tmp_path / "n")] if is_noted else [])
    ((run, _),) = explored(home, lambda _: use(tmp_path / "n"), preemptions=0)
    assert run.unseen == []
    assert [step.access.kind for step in run.steps] == ["end"]
