"""Depth 2: the recovery crashes too, by a kill and then a power cut, or by two of a kind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, NotMeasured
from pytest_wfstate.faults.bounds import Bounds, Model
from pytest_wfstate.faults.crash.report import REMEMBERED
from pytest_wfstate.faults.remembered import Remembered
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import append, read, save, sync, write


def open_journal(home: Path) -> Path:
    """Return the journal, created durably unless it exists; another writer may have died while creating it."""
    journal = home / "journal"
    if not journal.exists():
        write(journal, b"")
        sync(home)
    return journal


def add(home: Path, line: str) -> None:
    journal = open_journal(home)
    text = journal.read_bytes()
    whole = text[: text.rfind(b"\n") + 1].rstrip(b"\0")
    fd = os.open(journal, os.O_WRONLY)
    os.ftruncate(fd, len(whole))
    os.pwrite(fd, f"{line}\n".encode(), len(whole))
    os.fsync(fd)
    os.close(fd)


def add_and_sync_home(home: Path, line: str) -> None:
    add(home, line)
    sync(home)


class TestSecondWriter:
    """A new journal is durable only once its folder is fsynced; a writer that finds it cannot know whether it was."""

    @staticmethod
    def explore(crash: Crash, depth: int, add: object = add, model: Model = "posix") -> None:
        assert callable(add)

        def workload(home: Path) -> None:
            add(home, "one")
            crash.ack("one")

        def check(disk: Disk) -> None:
            lines = (read(disk.home, "journal") or "").rstrip("\0").split("\n")
            assert set(disk.acked) <= set(lines), lines
            add(disk.home, "two")
            crash.ack("two")

        crash.explore(workload, check, depth=depth, model=model)

    def test_its_bug_is_not_found_with_one_crash(self, crash: Crash) -> None:
        self.explore(crash, depth=1)

    def test_its_bug_is_found_with_two_crashes(self, crash: Crash) -> None:
        with pytest.raises(CrashBug) as caught:
            self.explore(crash, depth=2)
        text = str(caught.value)
        assert text.startswith("A crash followed by a power cut (posix model) during recovery can leave a disk that ")
        assert re.sub(r" +\(?[^ ]*\.py:\d+\)?", "", text).splitlines()[2:8] == [
            "  acknowledged    'two'",
            "  first crash     it was killed, after create journal",
            "                      fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)",
            "  second crash    the power was cut during recovery, after ack of 'two'",
            '                      crash.ack("two")',
            "  lost            create journal",
        ]
        assert "An fsync of the folder (home) by recovery, before ack of 'two' (" in text
        assert "With it, 0 of " in text

    def test_its_bug_is_remembered_but_not_where_one_crash_is_asked_for(self, lab: Lab, tmp_path: Path) -> None:
        remembered = Remembered("test", tmp_path)
        texts = []
        for _ in range(2):
            with pytest.raises(CrashBug) as caught:
                self.explore(lab(remembered=remembered), depth=2)
            texts.append(str(caught.value))
        assert REMEMBERED not in texts[0]
        assert texts[1] == re.sub(r"posix: .*", REMEMBERED, texts[0])
        self.explore(lab(remembered=remembered), depth=1)
        assert len(remembered.ids()) == 1

    @pytest.mark.parametrize("model", ["kill", "ext4", "xfs"])
    def test_is_correct_under_other_models(self, crash: Crash, model: Model) -> None:
        self.explore(crash, depth=2, model=model)

    def test_is_correct_if_every_writer_syncs_the_folder(self, crash: Crash) -> None:
        self.explore(crash, depth=2, add=add_and_sync_home)


class TestRecoveryThatBreaks:
    """A recovery that removes the old note before it saves the new one."""

    @staticmethod
    def workload(home: Path) -> None:
        save(home, "new")

    @staticmethod
    def recover(disk: Disk) -> None:
        text = read(disk.home)
        assert text in ("old", "new", "recovered")
        (disk.home / "note").unlink()
        save(disk.home, "recovered")

    @pytest.mark.parametrize("model", ["kill", "ext4", "posix"])
    def test_is_caught(self, crash: Crash, model: Model) -> None:
        def setup(home: Path) -> None:
            save(home, "old")

        crash.explore(self.workload, self.recover, setup=setup, model=model)
        with pytest.raises(CrashBug) as caught:
            crash.explore(self.workload, self.recover, setup=setup, model=model, depth=2)
        text = str(caught.value)
        assert text.startswith("A crash followed by a ")
        how = "it was killed" if model == "kill" else "the power was cut"
        assert "  first crash     it was killed, before it did anything\n" in text
        assert f"  second crash    {how} during recovery, after unlink note " in text
        assert "All writes reached the disk: the second crash fell between two steps." in text
        assert "AssertionError" in text


def test_what_a_power_cut_left_is_durable(crash: Crash) -> None:
    def workload(home: Path) -> None:
        (home / "first").touch()
        (home / "second").touch()

    def check(disk: Disk) -> None:
        """Rely on the second file, without fsync, if the first is missing: only a power cut leaves that."""
        exists = (disk.home / "second").exists()
        assert exists or not disk.acked
        if exists and not (disk.home / "first").exists():
            crash.ack("the second")
            relied.append(disk.crash)
            (disk.home / "third").touch()

    relied: list[str] = []
    crash.explore(workload, check, depth=2)
    assert len(relied) > 2


def test_what_a_kill_left_is_not_durable(crash: Crash) -> None:
    def workload(home: Path) -> None:
        (home / "first").touch()

    def check(disk: Disk) -> None:
        exists = (disk.home / "first").exists()
        assert exists or not disk.acked
        if exists:
            crash.ack("the first")
            (disk.home / "third").touch()

    with pytest.raises(CrashBug, match="lost            create first"):
        crash.explore(workload, check, depth=2)


def test_two_crashes_that_leave_equal_disks_may_differ_in_what_is_durable(crash: Crash) -> None:
    """The note is overwritten with equal text, so a kill before and one after it leave equal disks."""

    def workload(home: Path) -> None:
        write(home / "tmp", b"text")
        os.replace(home / "tmp", home / "note")

    def check(disk: Disk) -> None:
        assert not disk.acked or read(disk.home) == "text"
        if not (disk.home / "tmp").exists() and read(disk.home) == "text":
            crash.ack("seen")
            (disk.home / "seen").touch()

    crash.explore(workload, check, setup=lambda home: write(home / "note", b"text"))
    with pytest.raises(CrashBug, match=r"lost            write of 4 bytes at 0 to tmp|lost            rename"):
        crash.explore(workload, check, setup=lambda home: write(home / "note", b"text"), depth=2)


def test_a_check_that_does_not_write_is_not_crashed(crash: Crash) -> None:
    def check(disk: Disk) -> None:
        read(disk.home)

    once = crash.explore(lambda home: save(home, "text"), check)
    twice = crash.explore(lambda home: save(home, "text"), check, depth=2)
    assert twice.tried == once.tried


def test_a_file_with_two_names_keeps_its_identity_in_recovery(crash: Crash) -> None:
    """An fsync by the second name in recovery keeps what the first run wrote by the first."""

    def setup(home: Path) -> None:
        write(home / "a", b"old")
        os.link(home / "a", home / "b")

    def workload(home: Path) -> None:
        append(home / "a", "new")

    def check(disk: Disk) -> None:
        assert not disk.acked or (disk.home / "a").read_bytes() == b"oldnew\n"
        if (disk.home / "a").read_bytes() == b"oldnew\n":
            sync(disk.home / "b")
            crash.ack("new is there")

    assert crash.explore(workload, check, setup=setup, depth=2).verdict == "CLEAN"


def test_effects_of_a_crashed_recovery_are_kept(crash: Crash) -> None:
    mails = crash.world([])
    seen = set()

    def check(disk: Disk) -> None:
        seen.add(tuple(mails))
        assert disk.effects == [f"append({mail!r})" for mail in mails]
        if len(mails) < 2:
            mails.append("sorry")
            (disk.home / "apologized").touch()

    def workload(home: Path) -> None:
        save(home, "text")
        mails.append("hello")

    crash.explore(workload, check, depth=2)
    assert seen == {(), ("hello",), ("sorry",), ("hello", "sorry")}


def test_a_bound_leaves_room_for_recoveries_and_counts_the_skipped_ones(lab: Lab) -> None:
    def check(disk: Disk) -> None:
        (disk.home / "seen").touch()
        crashes.append(disk.crash)

    def workload(home: Path) -> None:
        for number in range(4):
            write(home / str(number), b"text")

    crashes: list[str] = []
    crash = lab(bounds=Bounds(states=200))
    explored = crash.explore(workload, check, depth=2)
    assert explored.tried == 200
    assert any("seen" in crash for crash in crashes)
    assert explored.skipped > 0


def test_a_recovery_that_cannot_be_recorded_is_not_measured(crash: Crash) -> None:
    def check(disk: Disk) -> None:
        os.system(f"touch {disk.home / 'seen'}")

    with pytest.raises(NotMeasured, match=r"child process was started \(by os.system\)"):
        crash.explore(lambda home: save(home, "text"), check, depth=2)
