"""Advice: the fsync that is missing, where, and how many disks it fixes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import MODELS, Bounds, Model
from pytest_wfstate.faults.crash.advice import first_missing_sync
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states
from pytest_wfstate.faults.trace.ops import Trace
from tests.unit.faults.conftest import Lab, note_is_kept, saving
from tests.unit.faults.disk import protocols
from tests.unit.faults.disk.notes import (
    append,
    read,
    save,
    save_without_file_fsync,
    save_without_folder_fsync,
    save_without_fsync,
    sync,
    write,
)
from tests.unit.faults.disk.test_models import every_state, traces

Save = Callable[[Path, str], None]


def bug(crash: Crash, save: Save, model: Model = "posix") -> str:
    """The report of a way to save one note, without places in the code."""

    def check(disk: Disk) -> None:
        text = read(disk.home)
        assert text == "text" or (text is None and not disk.acked)

    with pytest.raises(CrashBug) as caught:
        crash.explore(saving(crash, save), check, model=model)
    return re.sub(r" \([^ ]*\.py:\d+\)", "", str(caught.value))


def counts(text: str) -> tuple[int, int]:
    """How many disks fail the check with the fsync that is advised, and without."""
    match = re.search(r"With it, (\d+) of \d+ disks still fail; without it, (\d+) of", text)
    assert match is not None
    return int(match[1]), int(match[2])


@pytest.mark.parametrize("model", ["ext4", "xfs", "posix"])
@pytest.mark.parametrize(
    ("save", "advice"),
    [
        (save_without_file_fsync, "An fsync of note.tmp before rename note.tmp to note"),
        (save_without_folder_fsync, "An fsync of the folder (home) after rename note.tmp to note"),
    ],
)
def test_of_the_file_before_and_of_the_folder_after_the_rename(
    crash: Crash, model: Model, save: Save, advice: str
) -> None:
    text = bug(crash, save, model)
    assert f"{advice} would make this state impossible." in text
    after, before = counts(text)
    assert after == 0 < before


def test_of_the_file_after_an_append(crash: Crash) -> None:
    def workload(home: Path) -> None:
        append(home / "log", "one")
        crash.ack()

    def check(disk: Disk) -> None:
        assert not disk.acked or (disk.home / "log").read_bytes() == b"one\n"

    with pytest.raises(CrashBug, match=r"An fsync of log after write of 4 bytes at 0 to log \(.*notes.py:\d+\) would"):
        crash.explore(workload, check, setup=lambda home: write(home / "log", b""))


def test_of_the_folder_that_a_new_one_is_in(crash: Crash) -> None:
    def workload(home: Path) -> None:
        (home / "a" / "b").mkdir(parents=True)
        sync(home / "a")
        crash.ack()

    def check(disk: Disk) -> None:
        assert not disk.acked or (disk.home / "a" / "b").is_dir()

    with pytest.raises(CrashBug, match=r"An fsync of the folder \(home\) after mkdir a "):
        crash.explore(workload, check)


def test_of_the_folder_that_something_was_moved_out_of(crash: Crash) -> None:
    def setup(home: Path) -> None:
        (home / "done").mkdir()
        (home / "todo").mkdir()
        (home / "todo" / "job").touch()

    def workload(home: Path) -> None:
        os.rename(home / "todo" / "job", home / "done" / "job")
        sync(home / "done")
        crash.ack()

    def check(disk: Disk) -> None:
        assert not disk.acked or not (disk.home / "todo" / "job").exists()

    with pytest.raises(CrashBug, match=r"An fsync of the folder todo after rename todo/job to done/job"):
        crash.explore(workload, check, setup=setup)


def test_two_that_are_missing_are_both_named(crash: Crash) -> None:
    text = bug(crash, save_without_fsync)
    assert "An fsync of the folder (home) after rename note.tmp to note would make this state impossible." in text
    after, before = counts(text)
    assert 0 < after < before
    assert re.search(r"With an fsync of note.tmp before rename note.tmp to note as well, 0 of \d+ still fail\.", text)


def test_every_op_of_the_same_line_is_fixed_at_once(crash: Crash) -> None:
    def workload(home: Path) -> None:
        for number in (1, 2, 3):
            save_without_folder_fsync(home, str(number))
            crash.ack(number)

    def check(disk: Disk) -> None:
        assert int(read(disk.home) or 0) >= len(disk.acked)

    with pytest.raises(CrashBug) as caught:
        crash.explore(workload, check)
    after, before = counts(str(caught.value))
    assert after == 0 < before


def write_in_parts(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(b"new ")
        file.write(b"new")


def overwrite_in_two_writes(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"new ")
    os.write(fd, b"new")
    os.close(fd)


class TestWithoutAnFsyncThatHelps:
    @pytest.mark.parametrize(("model", "missing"), [("ext4", "512 to 1,023"), ("posix", "0 to 511")])
    def test_a_file_is_changed_in_place(self, crash: Crash, model: Model, missing: str) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "note", os.O_WRONLY)
            os.write(fd, b"n" * 1024)
            os.fsync(fd)
            os.close(fd)

        def check(disk: Disk) -> None:
            assert len(set((disk.home / "note").read_bytes())) == 1

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, check, setup=lambda home: write(home / "note", b"o" * 1024), model=model)
        text = str(caught.value)
        assert f"write of 1,024 bytes at 0 to note, torn (missing bytes {missing})" in text
        assert "No fsync helps: the file is changed in place" in text
        assert "impossible" not in text

    def test_a_killed_process_leaves_a_part_of_a_write(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home) in (None, "", "x" * 5000)

        with pytest.raises(CrashBug, match="No fsync helps: the file is changed in place"):
            crash.explore(lambda home: write(home / "note", b"x" * 5000), check, model="kill")

    @pytest.mark.parametrize(
        "overwrite",
        [
            lambda path: path.write_text("new"),
            write_in_parts,
            overwrite_in_two_writes,
        ],
        ids=["write_text", "several writes", "without truncate"],
    )
    def test_a_file_is_half_written(self, crash: Crash, overwrite: Callable[[Path], object]) -> None:
        """Killed between the truncate and the write, or between two writes, with nothing lost."""
        contents: set[bytes] = set()

        def workload(home: Path) -> None:
            overwrite(home / "note")
            contents.add((home / "note").read_bytes())

        def check(disk: Disk) -> None:
            assert (disk.home / "note").read_bytes() in {b"old old", *contents}

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, check, setup=lambda home: write(home / "note", b"old old"), model="kill")
        text = str(caught.value)
        assert (
            "fell in the middle of writing note. No fsync helps; write a temporary file and rename it to note." in text
        )
        assert "idempotent" not in text

    def test_a_new_file_is_half_written(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home) in (None, "text")

        with pytest.raises(CrashBug, match="No fsync helps; write a temporary file and rename it to note"):
            crash.explore(lambda home: (home / "note").write_text("text"), check, model="kill")

    def test_a_temporary_file_that_is_half_written_is_not_blamed(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home, "note.tmp") != ""

        with pytest.raises(CrashBug) as caught:
            crash.explore(lambda home: save(home, "text"), check, model="kill")
        assert "in the middle of writing" not in str(caught.value)

    def test_a_crash_between_two_steps(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "1", "a")
            save(home, "1", "b")

        def check(disk: Disk) -> None:
            assert read(disk.home, "a") == read(disk.home, "b")

        with pytest.raises(CrashBug) as caught:
            crash.explore(workload, check)
        assert "All writes reached the disk: the crash fell between two steps. No fsync helps; make the " in str(
            caught.value
        )
        assert "  lost " not in str(caught.value)


class TestSqlite:
    """A user cannot add an fsync to SQLite: the advice is a pragma, and following it is enough."""

    @staticmethod
    def advice(lab: Lab, journal_mode: str, synchronous: str, model: Model) -> list[str]:
        """The advice for saving three notes; empty if no crash loses one."""
        crash = lab(bounds=Bounds(states=150, advised=100))

        def workload(home: Path) -> None:
            with protocols.sqlite(journal_mode, synchronous)(home) as save:
                for number in (1, 2, 3):
                    save(number)
                    crash.ack(number)

        def check(disk: Disk) -> None:
            assert protocols.read(disk.home) >= len(disk.acked)

        try:
            crash.explore(workload, check, model=model)
        except CrashBug as error:
            return [line for line in str(error).splitlines() if line.startswith(("PRAGMA", "With", "No", "Use"))]
        return []

    @pytest.mark.parametrize(
        ("journal_mode", "synchronous", "model", "advised"),
        [
            ("delete", "full", "ext4", ["EXTRA"]),
            ("delete", "off", "posix", ["FULL", "EXTRA"]),
            ("wal", "normal", "posix", ["FULL"]),
        ],
    )
    def test_the_advised_pragmas_make_it_sound(
        self, lab: Lab, journal_mode: str, synchronous: str, model: Model, advised: list[str]
    ) -> None:
        followed = []
        while lines := self.advice(lab, journal_mode, synchronous, model):
            match = re.fullmatch(r"PRAGMA synchronous=(\w+) for notes.db would make this state impossible\.", lines[0])
            assert match is not None, lines
            synchronous = match[1]
            followed.append(synchronous)
        assert followed == advised

    def test_what_a_pragma_would_leave_is_counted(self, lab: Lab) -> None:
        first, counted, further = self.advice(lab, "delete", "off", "posix")
        after, before = counts(counted)
        assert first.startswith("PRAGMA synchronous=FULL for notes.db")
        assert 0 < after < before
        assert re.fullmatch(r"With PRAGMA synchronous=EXTRA for notes.db as well, 0 of \d+ still fail\.", further)

    @pytest.mark.parametrize("journal_mode", ["memory", "off"])
    def test_without_a_journal_the_advice_is_to_keep_one(self, lab: Lab, journal_mode: str) -> None:
        assert self.advice(lab, journal_mode, "full", "posix") == [
            "No fsync helps: SQLite keeps no journal on the disk, and changes the database in place.",
            "Use PRAGMA journal_mode=WAL, or DELETE: both keep one.",
        ]

    def test_does_not_keep_other_files_from_their_advice(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            with protocols.sqlite("wal", "full")(home) as save_row:
                save_row(1)
                save_without_folder_fsync(home, "text")
                crash.ack()

        with pytest.raises(CrashBug, match=r"An fsync of the folder \(home\) after rename note.tmp to note"):
            crash.explore(workload, note_is_kept)


@settings(max_examples=75, deadline=None)
@given(traces(), st.sampled_from([model for model in MODELS if model != "kill"]))
def test_what_is_advised_does_make_the_state_impossible(trace: Trace, model: Model) -> None:
    assume(all(point.possible < 200 for point in crash_points(trace, model)))
    for state in itertools.islice(distinct_states(CrashedRun(trace, model, ()), Counters()), 20):
        missing = first_missing_sync(state)
        if missing is not None:
            disk = frozenset(state.tree().content().items())
            assert (disk, state.point.markers) not in every_state(missing.run.trace, model)
