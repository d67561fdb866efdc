"""Well-known ways to lose saved data, each in a few lines, and the report that catches it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, ErrorBug
from pytest_wfstate.faults.bounds import Model

NOTE = {"refund": "order-17"}
TEXT = json.dumps(NOTE)


def fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def note_is_there(disk: Disk) -> None:
    """An acknowledged note must exist, and an existing note must be complete."""
    file = disk.home / "note.json"
    if disk.acked or file.exists():
        assert json.loads(file.read_bytes()) == NOTE


def caught(
    crash: Crash, save: Callable[[Path], Any], check: Callable[[Disk], Any], model: Model, depth: int = 1
) -> str:
    def workload(home: Path) -> None:
        save(home)
        crash.ack("saved")

    with pytest.raises(CrashBug) as bug:
        crash.explore(workload, check, model=model, depth=depth)
    return str(bug.value)


def write_with_open(path: Path) -> None:
    with open(path, "w") as file:
        file.write(TEXT)


def write_with_os(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, TEXT.encode())
    os.close(fd)


@pytest.mark.parametrize("write", [write_with_open, write_with_os])
@pytest.mark.parametrize("model", ["ext4", "xfs", "posix"])
def test_a_rename_without_fsync(crash: Crash, model: Model, write: Callable[[Path], None]) -> None:
    def save(home: Path) -> None:
        write(home / "note.tmp")
        os.rename(home / "note.tmp", home / "note.json")

    report = caught(crash, save, note_is_there, model)
    assert "an fsync of note.tmp before rename note.tmp to note.json" in report.lower()


@pytest.mark.parametrize("model", ["ext4", "xfs", "posix"])
def test_a_missing_fsync_of_the_folder(crash: Crash, model: Model) -> None:
    def save(home: Path) -> None:
        (home / "note.tmp").write_text(TEXT)
        fsync(home / "note.tmp")
        os.rename(home / "note.tmp", home / "note.json")

    report = caught(crash, save, note_is_there, model)
    assert "lost            rename note.tmp to note.json" in report
    assert "An fsync of the folder (home) after rename note.tmp to note.json" in report


@pytest.mark.parametrize("model", ["kill", "ext4", "xfs", "posix"])
def test_a_torn_append(crash: Crash, model: Model) -> None:
    def append(home: Path) -> None:
        with open(home / "log", "ab") as log:
            log.write(json.dumps({"text": "x" * 6000}).encode() + b"\n")
            log.flush()
            os.fsync(log.fileno())
        fsync(home)

    def every_line_is_json(disk: Disk) -> None:
        file = disk.home / "log"
        for line in file.read_bytes().splitlines() if file.exists() else ():
            json.loads(line)

    report = caught(crash, append, every_line_is_json, model)
    assert "lost            write of 6,013 bytes at 0 to log" in report
    # Under posix, the size can be there without the data: a sector reads as zeros, which are not even text.
    assert f"on the disk     log: {'6,013' if model == 'posix' else '4,096'} bytes" in report
    assert ("UnicodeDecodeError" if model == "posix" else "JSONDecodeError") in report


@pytest.mark.parametrize("model", ["kill", "ext4", "xfs", "posix"])
def test_a_crash_between_the_two_files_of_one_save(crash: Crash, model: Model) -> None:
    def replace(file: Path, text: str) -> None:
        tmp = file.with_suffix(".tmp")
        tmp.write_text(text)
        fsync(tmp)
        tmp.rename(file)
        fsync(file.parent)

    def save(home: Path) -> None:
        replace(home / "note.json", TEXT)
        replace(home / "index.json", json.dumps(["note"]))

    def both_or_neither(disk: Disk) -> None:
        assert (disk.home / "note.json").exists() == (disk.home / "index.json").exists()

    report = caught(crash, save, both_or_neither, model)
    assert "after rename note.tmp to note.json" in report
    assert "lost  " not in report  # it happens even if no write is lost


def test_a_store_that_ignores_a_full_disk(crash: Crash) -> None:
    def workload(home: Path) -> None:
        with contextlib.suppress(OSError):
            (home / "note.tmp").write_text(TEXT)
            (home / "note.tmp").rename(home / "note.json")
        crash.ack("saved")

    with pytest.raises(ErrorBug) as bug:
        crash.errors(workload, note_is_there, errors=("ENOSPC",))

    assert "what failed     create note.tmp (op 1) failed with ENOSPC" in str(bug.value)
    assert "the workload    returned as if nothing had failed" in str(bug.value)
    assert "acknowledged    'saved'" in str(bug.value)


def test_a_journal_whose_folder_is_not_fsynced_after_its_first_writer_died(crash: Crash) -> None:
    def append(home: Path, line: bytes) -> None:
        is_new = not (home / "log").exists()
        with open(home / "log", "ab") as log:
            log.write(line)
            log.flush()
            os.fsync(log.fileno())
        if is_new:
            fsync(home)

    def append_again(disk: Disk) -> None:
        if "second" in disk.acked:
            assert b"second\n" in (disk.home / "log").read_bytes()
        append(disk.home, b"second\n")
        crash.ack("second")

    def first(home: Path) -> None:
        append(home, b"first\n")

    assert crash.explore(first, append_again).verdict == "CLEAN"  # one crash alone does not show it
    report = caught(crash, first, append_again, "posix", depth=2)
    assert "lost            create log" in report
    assert "An fsync of the folder (home) by recovery, before ack of 'second'" in report
