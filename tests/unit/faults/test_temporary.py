"""Temporary folders: removed with their owner, and later if even the guard was killed; never those of the living."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_wfstate.faults import temporary
from pytest_wfstate.faults.temporary import TemporaryFolder, sweep
from tests.unit.faults.conftest import until

# Makes a folder, says where, and waits; then dies with all of its guards, if it is asked to.
OWNER = """
import os, sys
from pytest_wfstate.faults.temporary import TemporaryFolder
folder = TemporaryFolder("home", sys.argv[1])
(folder.path / "file").touch()
print(folder.path, folder._guard._process.pid, flush=True)
if sys.stdin.readline() == "die\\n":
    os.kill(folder._guard._process.pid, 9)
    os.kill(os.getpid(), 9)
"""


class Owner:
    """Another process with a folder."""

    def __init__(self, base: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        folder, guard = self.process.stdout.readline().split()
        self.folder, self.guard = Path(folder), int(guard)

    def die(self) -> None:
        self.process.communicate("die\n")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    owner.process.kill()
    owner.process.communicate()


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = TemporaryFolder("home", str(tmp_path))
    (folder.path / "closed").mkdir()
    (folder.path / "closed" / "file").touch()
    (folder.path / "closed").chmod(0)
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_goes_with_a_process_that_is_killed(owner: Owner) -> None:
    owner.process.kill()
    until(lambda: not owner.folder.exists())


def test_a_folder_that_the_guard_could_not_remove_is_swept(owner: Owner, tmp_path: Path) -> None:
    owner.die()
    assert owner.folder.exists()
    sweep(str(tmp_path))
    assert not owner.folder.exists()


def test_the_next_run_sweeps(owner: Owner, tmp_path: Path) -> None:
    owner.die()
    TemporaryFolder("home", str(tmp_path)).remove()
    assert not owner.folder.exists()


def test_the_folder_of_a_running_process_is_left_alone(owner: Owner, tmp_path: Path) -> None:
    mine = TemporaryFolder("home", str(tmp_path))
    sweep(str(tmp_path))
    assert owner.folder.exists()
    assert mine.path.exists()
    mine.remove()


def test_a_process_that_has_the_id_of_the_owner_by_now_is_not_the_owner(owner: Owner, tmp_path: Path) -> None:
    start = str(temporary._start(owner.process.pid))
    earlier = owner.folder.with_name(owner.folder.name.replace(start, str(int(start) - 1)))
    earlier.mkdir()
    sweep(str(tmp_path))
    assert not earlier.exists()
    assert owner.folder.exists()


def test_a_process_that_cannot_be_seen_may_be_running(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.die()

    def kill(pid: int, sign: int) -> None:
        raise PermissionError(pid, sign)

    monkeypatch.setattr(os, "kill", kill)
    sweep(str(tmp_path))
    monkeypatch.undo()
    assert owner.folder.exists()


def test_a_folder_of_another_container_or_boot_is_left_alone(owner: Owner, tmp_path: Path) -> None:
    owner.die()
    elsewhere = owner.folder.rename(
        owner.folder.with_name(owner.folder.name.replace(str(temporary._system()), "0" * 8))
    )
    sweep(str(tmp_path))
    assert elsewhere.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_left_alone(owner: Owner, tmp_path: Path) -> None:
    owner.die()
    os.chown(owner.folder, 65534, 65534)
    sweep(str(tmp_path))
    assert owner.folder.exists()


def test_a_folder_with_another_name_is_left_alone(tmp_path: Path) -> None:
    system = temporary._system()
    names = ["wfstate-abcdefgh", "wfstate-home-abcdefgh", f"mine-wfstate-home-{system}-99999999-1-a", "wfstate-kept"]
    for name in names:
        (tmp_path / name).mkdir()
    sweep(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_where_the_processes_of_another_container_are_shown_no_owner_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1 << 30)
    assert temporary._owner() is None
