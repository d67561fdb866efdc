"""A change that is taken back leaves no content behind, but a newer ctime: it is a reason not to trust the trace."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, NotMeasured
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.conftest import accept
from tests.unit.faults.disk.notes import save

libc = ctypes.CDLL(None)


def native_write(path: Path, data: bytes, flags: int = 0) -> None:
    fd = libc.open(os.fsencode(path), os.O_WRONLY | flags, 0o600)
    assert fd >= 0
    assert libc.write(fd, data, len(data)) == len(data)
    libc.close(fd)


def until_changed(path: Path, change: Callable[[], Any]) -> None:
    """Make a change again until the clock of the file system has ticked."""
    before = os.stat(path).st_ctime_ns
    while os.stat(path).st_ctime_ns == before:
        change()


def overwrite_and_restore(home: Path) -> None:
    def change() -> None:
        native_write(home / "old", b"XXXXX")
        native_write(home / "old", b"12345")

    until_changed(home / "old", change)


def create_and_delete(home: Path) -> None:
    def change() -> None:
        native_write(home / "folder" / "new", b"text", os.O_CREAT)
        libc.unlink(os.fsencode(home / "folder" / "new"))

    until_changed(home / "folder", change)


def rename_there_and_back(home: Path) -> None:
    def change() -> None:
        libc.rename(os.fsencode(home / "old"), os.fsencode(home / "other"))
        libc.rename(os.fsencode(home / "other"), os.fsencode(home / "old"))

    until_changed(home, change)


def reasons(workload: Callable[[Path], Any], home: Path) -> list[str]:
    with Recorder(home) as recorder:
        workload(home)
    return recorder.unmeasured


TAKEN_BACK: dict[str, tuple[Callable[[Path], Any], str]] = {
    "write": (overwrite_and_restore, "old"),
    "create": (create_and_delete, "folder"),
    "rename": (rename_there_and_back, "home, old"),
}


@pytest.mark.parametrize(("change", "paths"), TAKEN_BACK.values(), ids=TAKEN_BACK)
def test_a_change_by_native_code_that_is_taken_back_is_detected(
    change: Callable[[Path], Any], paths: str, home: Path
) -> None:
    (reason,) = reasons(change, home)
    assert reason == (
        f"The recorded ops do not explain when {paths} last changed: something was written or created there and taken "
        "back by native code, by another process, or through a file object that was opened before recording began."
    )


def append_afterwards(home: Path) -> None:
    with open(home / "old", "ab") as file:
        file.write(b"6")


LATER: dict[str, Callable[[Path], Any]] = {
    "write": append_afterwards,
    "unlink": lambda home: os.unlink(home / "old"),
    "rename": lambda home: os.rename(home / "old", home / "new"),
    "chmod": lambda home: os.chmod(home / "old", 0o600),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_it_is_detected_although_the_file_is_changed_or_removed_later(later: Callable[[Path], Any], home: Path) -> None:
    def workload(home: Path) -> None:
        overwrite_and_restore(home)
        later(home)

    (reason,) = reasons(workload, home)
    assert reason.startswith("The recorded ops do not explain when ")


def change_attributes(home: Path) -> None:
    os.chmod(home / "old", 0o600)
    os.chown(home / "old", -1, -1)
    os.utime(home / "old", (1, 1))
    (home / "old").touch()
    shutil.copystat(home / "folder", home / "old")
    shutil.copy2(home / "old", home / "copy")
    fd = os.open(home / "old", os.O_RDONLY)
    os.fchmod(fd, 0o644)
    os.utime(fd)
    os.close(fd)
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(home / "old", "user.note", b"1")
        os.removexattr(home / "old", "user.note")


def empty_an_empty_file(home: Path) -> None:
    for _ in range(2):
        open(home / "empty", "w").close()
    os.truncate(home / "empty", 0)


def use_names(home: Path) -> None:
    os.link(home / "old", home / "twin")
    os.rename(home / "old", home / "folder" / "moved")
    (home / "twin").write_bytes(b"1")
    os.replace(home / "twin", home / "folder" / "moved")
    (home / "folder").rename(home / "elsewhere")
    shutil.rmtree(home / "elsewhere")


def write_without_a_name(home: Path) -> None:
    with open(home / "old", "ab", buffering=0) as file:
        os.unlink(home / "old")
        file.write(b"6")


def fail(home: Path) -> None:
    for call in (os.rmdir, os.unlink, os.mkdir):
        with contextlib.suppress(OSError):
            call(home / "folder" / "missing" / "x")
    with contextlib.suppress(FileExistsError):
        os.mkdir(home / "folder")


def use_sqlite(home: Path) -> None:
    for mode in ("wal", "delete", "truncate", "persist"):
        with contextlib.closing(sqlite3.connect(home / f"{mode}.db")) as connection:
            connection.execute(f"PRAGMA journal_mode={mode}")
            connection.execute("CREATE TABLE notes (text)")
            for _ in range(3):
                connection.execute("INSERT INTO notes VALUES ('text')")
                connection.commit()


def read_only(home: Path) -> None:
    (home / "old").read_bytes()
    list(home.iterdir())


EXPLAINED = [
    change_attributes,
    empty_an_empty_file,
    use_names,
    write_without_a_name,
    fail,
    use_sqlite,
    read_only,
]


@pytest.mark.parametrize("workload", EXPLAINED, ids=lambda workload: workload.__name__)
def test_changes_by_python_and_sqlite_are_explained(workload: Callable[[Path], Any], home: Path) -> None:
    assert reasons(workload, home) == []


def test_a_store_whose_native_code_takes_a_file_back_is_not_measured(crash: Crash) -> None:
    def workload(home: Path) -> None:
        def change() -> None:
            native_write(home / "journal", b"text", os.O_CREAT)
            libc.unlink(os.fsencode(home / "journal"))

        save(home, "text")
        until_changed(home, change)

    with pytest.raises(NotMeasured, match="The recorded ops do not explain when home last changed"):
        crash.explore(workload, accept)
