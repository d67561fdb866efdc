"""After a failed fsync, only what a power cut alone could not leave is a violation of `crash.errors`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk, ErrorBug
from pytest_wfstate.faults import sync_async
from pytest_wfstate.faults.bounds import Bounds, Model
from pytest_wfstate.faults.crash import unflushed_run
from pytest_wfstate.faults.disk.states import CrashedRun
from pytest_wfstate.faults.trace.ops import PAGE, Trace, Write
from tests.unit.faults.conftest import Lab, note_is_kept, saving
from tests.unit.faults.crash.test_shrink import CountingCheck
from tests.unit.faults.disk.notes import read, save, save_without_folder_fsync, sync, write
from tests.unit.faults.disk.small_disks import POWER, tree
from tests.unit.faults.replay import replayed_report

Save = Callable[[Path, str], None]


def sync_again(path: Path) -> None:
    """Retry a failed fsync, which then succeeds and flushes nothing."""
    try:
        sync(path)
    except OSError:
        sync(path)


def save_with_a_second_fsync(home: Path, text: str) -> None:
    write(home / "note.tmp", text.encode())
    sync_again(home / "note.tmp")
    os.replace(home / "note.tmp", home / "note")


def save_elsewhere_without_folder_fsync(home: Path, text: str) -> None:
    """Save a note well but for its folder; and if its fsync fails, write it again and forget to fsync that."""
    write(home / "note.tmp", text.encode())
    try:
        sync(home / "note.tmp")
    except OSError:
        os.unlink(home / "note.tmp")
        write(home / "note.tmp", text.encode())
    os.replace(home / "note.tmp", home / "note")


def save_elsewhere(home: Path, text: str) -> None:
    save_elsewhere_without_folder_fsync(home, text)
    sync(home)


class TestAPowerCut:
    def test_that_breaks_the_store_without_an_error_is_not_reported(self, crash: Crash) -> None:
        def save(home: Path, text: str) -> None:
            with contextlib.suppress(OSError):
                save_without_folder_fsync(home, text)
                return
            save_without_folder_fsync(home, text)

        with pytest.raises(CrashBug):
            crash.explore(saving(crash, save), note_is_kept)
        assert crash.errors(saving(crash, save), note_is_kept, errors=("EIO",)).verdict == "CLEAN"

    def test_that_breaks_the_store_between_two_steps_is_not_reported(self, crash: Crash) -> None:
        """Whatever else it loses."""

        def workload(home: Path) -> None:
            crash.ack("text")
            try:
                save(home, "text")
            except OSError:
                save(home, "text")

        assert crash.errors(workload, note_is_kept, errors=("EIO",)).verdict == "CLEAN"

    def test_that_leaves_the_same_disk_without_an_error_is_not_reported(self, crash: Crash) -> None:
        """The failed fsync loses the note, but so does a power cut just before it."""

        def save(home: Path, text: str) -> None:
            write(home / "note.tmp", text.encode())
            os.replace(home / "note.tmp", home / "note")
            sync(home / "note")
            sync(home)

        def check(disk: Disk) -> None:
            assert read(disk.home) in (None, "text")

        with pytest.raises(CrashBug):
            crash.explore(saving(crash, save), check)
        assert crash.errors(saving(crash, save), check, errors=("EIO",)).verdict == "CLEAN"

    def test_that_the_failed_fsync_makes_worse_is_reported(self, crash: Crash) -> None:
        """The folder is never fsynced, so a power cut alone breaks it as well, but not like this."""
        with pytest.raises(ErrorBug) as caught:
            crash.errors(saving(crash, save_with_a_second_fsync), note_is_kept, errors=("EIO",))
        text = str(caught.value)
        assert "  lost            write of 4 bytes at 0 to note.tmp  " in text
        assert "lost            rename" not in text
        assert "A failed fsync marks dirty pages clean: a second fsync flushes nothing." in text

    @pytest.mark.parametrize("save", [save_elsewhere, save_elsewhere_without_folder_fsync])
    def test_that_breaks_how_an_error_is_handled_is_reported_with_the_fsync_that_is_missing(
        self, lab: Lab, save: Save
    ) -> None:
        """Even if a power cut alone breaks the store as well, but by another loss."""

        def explore(crash: Crash) -> None:
            crash.errors(saving(crash, save), note_is_kept, errors=("EIO",))

        with pytest.raises(ErrorBug) as caught:
            explore(lab())
        text = str(caught.value)
        assert text.startswith(
            "An I/O error followed by a power cut (posix model) can leave a disk that fails the check"
        )
        assert "An fsync of note.tmp before rename note.tmp to note (" in text
        assert "marks dirty pages clean" not in text
        assert replayed_report(lab, caught.value, explore) == text


@contextlib.contextmanager
def connected(home: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(home / "db", isolation_level=None)) as connection:
        connection.execute("pragma synchronous=full")
        yield connection


@pytest.mark.parametrize("model", POWER)
def test_sqlite_that_is_retried_is_not_blamed_for_what_a_power_cut_does(lab: Lab, model: Model) -> None:
    """Under a rollback journal with synchronous=FULL, a power cut can bring a journal back and undo a commit.

    On ext4 and xfs the next commit would prevent it, by its fsync. No two runs write the same journal: it holds a
    random number.
    """
    crash = lab(model=model, bounds=Bounds(states=150))

    def setup(home: Path) -> None:
        with connected(home) as connection:
            connection.execute("create table notes (text)")

    def workload(home: Path) -> None:
        with connected(home) as connection:
            for _ in range(2):
                try:
                    connection.execute("insert into notes values ('text')")
                except sqlite3.OperationalError:
                    connection.execute("insert into notes values ('text')")
                crash.ack("text")

    def check(disk: Disk) -> None:
        with connected(disk.home) as connection:
            rows = connection.execute("select count(*) from notes").fetchone()[0]
        assert rows >= len(disk.acked)

    assert crash.errors(workload, check, setup=setup, errors=("EIO",)).verdict == "CLEAN"


def test_a_whole_run_that_fails_if_nothing_is_lost_explains_no_loss() -> None:
    run = CrashedRun(Trace(tree(a=b""), [Write(1, 0, b"x")]), "posix", ())
    whole = unflushed_run.WholeRun(run, CountingCheck(lambda state: not state.lost()))
    assert sync_async.run(whole.fails_by_losing(frozenset()))
    assert not sync_async.run(whole.fails_by_losing(frozenset({("Write", "")})))


def test_the_disks_of_the_whole_run_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unflushed_run, "_MOST_BYTES", 20 * PAGE)
    run = CrashedRun(Trace(tree(a=b""), [Write(1, 0, b"x" * 8 * PAGE)]), "posix", ())
    check = CountingCheck(lambda _: False)
    assert not sync_async.run(unflushed_run.WholeRun(run, check).fails_by_losing(frozenset()))
    assert 0 < check.checked < 5
