"""What fails because of an injected error: a disk that stays full, closes, reads, and writes after a short one."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, Disk, ErrorBug, NotMeasured
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.faults.crash.failing_gate import FailingGate, Failure, all_failures
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.conftest import Lab, accept
from tests.unit.faults.disk.notes import read, sync, write
from tests.unit.faults.replay import replayed_report


def attempt(call: Callable[[], Any]) -> str:
    """Return the name of the error that a call raises, or "done"."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


class Attempts(list[list[str]]):
    """Workloads that make a few calls, whatever fails, and the outcomes of each run."""

    def workload(self, *calls: Callable[[Path], Any]) -> Callable[[Path], None]:
        def work(home: Path) -> None:
            self.append([attempt(lambda call=call: call(home)) for call in calls])  # type: ignore[misc]

        return work


@pytest.fixture
def attempts() -> Attempts:
    return Attempts()


def append(home: Path) -> None:
    with open(home / "log", "ab", buffering=0) as log:
        log.write(b"line")
        os.fsync(log.fileno())


def overwrite(home: Path) -> None:
    fd = os.open(home / "old", os.O_WRONLY)
    os.pwrite(fd, b"x", 0)
    os.fsync(fd)
    os.close(fd)


def set_attribute(home: Path) -> None:
    try:
        os.setxattr(home / "old", "user.name", b"value")
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # not every file system has them
            raise


def old_note(home: Path) -> None:
    write(home / "old", b"old")


class TestAFullDisk:
    @pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
    def test_stays_full_for_all_that_needs_room(self, crash: Crash, attempts: Attempts, error: str) -> None:
        calls = [
            append,
            append,
            lambda home: os.mkdir(home / "folder"),
            lambda home: os.symlink("x", home / "symlink"),
            set_attribute,
            overwrite,
            lambda home: os.rename(home / "old", home / "new"),
        ]
        crash.errors(attempts.workload(*calls), accept, setup=old_note, errors=(error,))
        assert attempts[0] == ["done"] * 7
        assert attempts[1] == [error] * 5 + ["done"] * 2

    @pytest.mark.parametrize(
        "free",
        [
            lambda home: os.unlink(home / "old"),
            lambda home: os.truncate(home / "old", 1),
            lambda home: open(home / "old", "wb").close(),
            lambda home: os.replace(home / "other", home / "old"),
        ],
        ids=["unlink", "truncate", "open", "replace"],
    )
    def test_has_room_once_something_is_deleted(
        self, crash: Crash, attempts: Attempts, free: Callable[[Path], Any]
    ) -> None:
        def setup(home: Path) -> None:
            old_note(home)
            write(home / "other", b"other")

        crash.errors(attempts.workload(append, append, free, append), accept, setup=setup, errors=("ENOSPC",))
        assert attempts[1] == ["ENOSPC", "ENOSPC", "done", "done"]

    def test_has_no_room_for_what_was_written_before(self, crash: Crash, attempts: Attempts) -> None:
        """The disk is found to be full only when the data is flushed; a second fsync then has nothing to flush."""

        def work(home: Path) -> None:
            fd = os.open(home / "note", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"text")
            mkdir = attempt(lambda: os.mkdir(home / "folder"))
            attempts.append([mkdir, *(attempt(lambda: os.fsync(fd)) for _ in range(2))])
            os.close(fd)

        crash.errors(work, accept, errors=("ENOSPC",))
        assert ["ENOSPC", "ENOSPC", "done"] in attempts  # mkdir fails
        assert ["done", "ENOSPC", "done"] in attempts  # the fsync is the first to fail

    def test_flushes_what_needs_no_room(self, crash: Crash, attempts: Attempts) -> None:
        crash.errors(attempts.workload(append, overwrite), accept, setup=old_note, errors=("ENOSPC",))
        assert attempts[1] == ["ENOSPC", "done"]

    def test_catches_a_store_that_acknowledges_after_a_failed_flush(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            write(home / "note", b"text")
            with contextlib.suppress(OSError):
                sync(home / "note")
            sync(home)
            crash.ack("text")

        def check(disk: Disk) -> None:
            assert not disk.acked or read(disk.home) == "text"

        with pytest.raises(ErrorBug, match=r"fsync note \(op 4\) failed with ENOSPC"):
            crash.errors(workload, check, errors=("ENOSPC",))

    def test_says_what_failed_later(self, crash: Crash) -> None:
        crashes: list[str] = []

        def workload(home: Path) -> None:
            for _ in range(3):
                attempt(lambda: append(home))

        crash.errors(workload, lambda disk: crashes.append(disk.crash), errors=("ENOSPC",))
        assert "create log (op 1) failed with ENOSPC; so did 2 later operations, as the disk stayed full" in crashes

    def test_stays_full_for_sqlite(self, lab: Lab) -> None:
        outcomes: set[tuple[str, ...]] = set()

        def work(home: Path) -> None:
            with contextlib.closing(sqlite3.connect(home / "db", isolation_level=None)) as connection:
                outcome = []
                for row in range(3):
                    try:
                        connection.execute("insert into t values (?)", ("x" * 9000 * (row + 1),))
                        outcome.append("done")
                    except sqlite3.OperationalError as error:
                        outcome.append(str(error))
            outcomes.add(tuple(outcome))

        def setup(home: Path) -> None:
            with contextlib.closing(sqlite3.connect(home / "db")) as connection:
                connection.execute("pragma journal_mode=wal")
                connection.execute("create table t (x)")

        lab(bounds=Bounds(states=100)).errors(work, accept, setup=setup, errors=("ENOSPC",))
        full = "database or disk is full"
        assert (full, full, full) in outcomes


class TestAClose:
    @pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT"])
    @pytest.mark.parametrize("save", [write, Path.write_bytes])
    def test_that_fails_loses_what_was_not_fsynced(
        self, crash: Crash, save: Callable[[Path, bytes], Any], error: str
    ) -> None:
        left: list[tuple[str, str | None]] = []

        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                save(home / "note", b"new")

        def setup(home: Path) -> None:
            (home / "note").write_text("old")

        crash.errors(workload, lambda disk: left.append((disk.crash, read(disk.home))), setup=setup, errors=(error,))
        assert (
            f"close note (op 3) failed with {error}, and what was written since the last fsync is lost",
            "old",
        ) in left

    def test_that_fails_closes_the_file(self, crash: Crash) -> None:
        raised: list[int] = []

        def workload(home: Path) -> None:
            file = open(home / "note", "w")
            file.write("text")
            try:
                file.close()
            except OSError as error:
                raised.append(error.errno or 0)
                assert file.closed
                file.close()

        crash.errors(workload, accept, errors=("EIO",))
        assert raised.count(errno.EIO) == 2  # the write, which close makes, and the close itself

    def test_does_not_fail_if_everything_was_fsynced(self, crash: Crash) -> None:
        crashes: list[str] = []
        crash.errors(append, lambda disk: crashes.append(disk.crash.split()[0]), errors=("EIO",))
        assert "close" not in crashes

    def test_that_is_not_looked_at_is_caught(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "note", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"text")
            with contextlib.suppress(OSError):
                os.close(fd)
            crash.ack("text")

        def check(disk: Disk) -> None:
            assert not disk.acked or read(disk.home) == "text"

        with pytest.raises(ErrorBug, match=r"what failed     close note \(op 3\) failed with EIO, and what was "):
            crash.errors(workload, check, errors=("EIO",))


def read_by_os(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def read_by_pread(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, 100, 0)
    finally:
        os.close(fd)


def read_by_file_io(path: Path) -> bytes:
    with io.FileIO(path) as file:
        return file.readall()


def read_by_lines(path: Path) -> bytes:
    with open(path) as file:
        return "".join(file).encode()


def read_a_copy(path: Path) -> bytes:
    copied = path.parent.parent / "copy"
    shutil.copyfile(path, copied)
    return copied.read_bytes()


class TestARead:
    @pytest.mark.parametrize(
        "load", [Path.read_bytes, read_by_os, read_by_pread, read_by_file_io, read_by_lines, read_a_copy]
    )
    def test_that_becomes_no_record_is_caught(self, crash: Crash, load: Callable[[Path], bytes]) -> None:
        """A store that takes any error to mean that there is no record forgets what was there."""

        def workload(home: Path) -> None:
            try:
                count = int(load(home / "old"))
            except OSError:
                count = 0
            write(home / "new", str(count + 1).encode())
            os.replace(home / "new", home / "old")

        def check(disk: Disk) -> None:
            assert int((disk.home / "old").read_text()) in (41, 42)

        with pytest.raises(ErrorBug, match="what failed     read old"):
            crash.errors(workload, check, setup=lambda home: write(home / "old", b"41"), errors=("EIO",))

    @pytest.mark.parametrize(
        "names",
        [lambda home: os.listdir(home), lambda home: [entry.name for entry in os.scandir(home)]],
        ids=["listdir", "scandir"],
    )
    def test_of_a_folder_fails_too(self, crash: Crash, names: Callable[[Path], Sequence[str]]) -> None:
        def workload(home: Path) -> None:
            try:
                found = names(home)
            except OSError:
                found = []
            write(home / "count", str(len(found)).encode())

        def check(disk: Disk) -> None:
            assert read(disk.home, "count") != "0"

        with pytest.raises(ErrorBug, match=r"what failed     list \. \(op 1\) failed with EIO"):
            crash.errors(workload, check, setup=old_note, errors=("EIO",))

    def test_outside_of_home_does_not_fail(self, crash: Crash, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("3")
        crashes: list[str] = []

        def workload(home: Path) -> None:
            text = (tmp_path / "config").read_text()
            with contextlib.suppress(OSError):
                (home / "note").write_text(text)

        crash.errors(workload, lambda disk: crashes.append(disk.crash.split()[0]), errors=("EIO",))
        assert "read" not in crashes

    @pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "short"])
    def test_does_not_fail_with_an_error_of_writes(self, crash: Crash, error: str) -> None:
        crashes: list[str] = []

        def workload(home: Path) -> None:
            (home / "old").read_text()
            with contextlib.suppress(OSError):
                append(home)

        crash.errors(workload, lambda disk: crashes.append(disk.crash.split()[0]), setup=old_note, errors=(error,))
        assert "read" not in crashes

    def test_of_sqlite_fails_too(self, lab: Lab) -> None:
        raised: set[str] = set()

        def setup(home: Path) -> None:
            with contextlib.closing(sqlite3.connect(home / "db")) as connection:
                connection.execute("create table t (x)")

        def workload(home: Path) -> None:
            try:
                with contextlib.closing(sqlite3.connect(home / "db", isolation_level=None)) as connection:
                    connection.execute("insert into t values (1)")
            except sqlite3.OperationalError as error:
                raised.add(error.sqlite_errorname)

        lab(bounds=Bounds(states=100)).errors(workload, accept, setup=setup, errors=("EIO",))
        assert {"SQLITE_IOERR_READ", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC"} <= raised


class TestAShortWrite:
    @staticmethod
    def write_rest_once(home: Path) -> None:
        """Write again what a short write left, and ignore what that returns or raises."""
        fd = os.open(home / "note", os.O_WRONLY | os.O_CREAT)
        written = os.write(fd, b"text")
        if written < 4:
            with contextlib.suppress(OSError):
                os.write(fd, b"text"[written:])
        os.close(fd)

    def run(self, crash: Crash, errors: tuple[str, ...]) -> None:
        def workload(home: Path) -> None:
            self.write_rest_once(home)
            crash.ack("text")

        def check(disk: Disk) -> None:
            assert not disk.acked or read(disk.home) == "text"

        crash.errors(workload, check, errors=errors)

    def test_whose_rest_is_written_is_no_bug(self, crash: Crash) -> None:
        self.run(crash, ("short",))

    @pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
    def test_whose_rest_fails_is_caught_if_that_is_ignored(self, lab: Lab, error: str) -> None:
        with pytest.raises(ErrorBug) as caught:
            self.run(lab(), (f"short_{error}",))
        text = str(caught.value)
        assert f"write note (op 2) took only half of its bytes; 1 later operation failed with {error}" in text
        assert replayed_report(lab, caught.value, lambda crash: self.run(crash, (f"short_{error}",))) == text


class TestOrder:
    def test_is_each_line_and_kind_and_file_before_repetitions(self) -> None:
        gate = FailingGate(None)
        for kind, path in [("create", "a"), ("write", "a"), ("write", "a"), ("write", "b"), ("write", "a")]:
            gate.before(Intent(kind, path, size=2))
        assert [(failure.error, failure.number) for failure in all_failures(gate, ("EIO", "short"))] == [
            *(("EIO", number) for number in (1, 2, 4)),
            *(("short", number) for number in (2, 4)),
            *((error, 3) for error in ("EIO", "short")),
            *((error, 5) for error in ("EIO", "short")),
        ]

    def test_covers_every_kind_within_a_small_bound(self, lab: Lab) -> None:
        crashes: list[str] = []

        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                for _ in range(100):
                    append(home)
                os.rename(home / "log", home / "new")

        lab(bounds=Bounds(6, 600)).errors(workload, lambda disk: crashes.append(disk.crash), errors=("EIO",))
        assert [crash.split()[0] for crash in crashes[:5]] == ["nothing", "create", "write", "fsync", "rename"]


class TestMemory:
    """A check that relies on memory proves nothing, after an error as after a crash."""

    def test_a_check_that_passes_only_with_it_is_not_measured(self, crash: Crash) -> None:
        saved: list[str] = []

        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                append(home)
            saved.append("line")

        def check(disk: Disk) -> None:
            assert saved or (disk.home / "log").read_bytes() == b"nothing"

        with pytest.raises(NotMeasured, match="passes in the workload's process and fails in a clean one"):
            crash.errors(workload, check, errors=("EIO",))

    def test_a_check_that_fails_only_with_it_is_not_measured(self, crash: Crash) -> None:
        failed: list[str] = []

        def workload(home: Path) -> None:
            try:
                append(home)
            except OSError:
                failed.append("line")

        def check(_: Disk) -> None:
            assert not failed

        with pytest.raises(NotMeasured, match="fails in the workload's process and passes in a clean one"):
            crash.errors(workload, check, errors=("EIO",))


def test_every_error_is_tried_by_default(crash: Crash) -> None:
    failures: set[str] = set()

    def workload(home: Path) -> None:
        with contextlib.suppress(OSError):
            TestAShortWrite.write_rest_once(home)

    crash.errors(workload, lambda disk: failures.add(disk.crash))
    assert {failure.removeprefix("write note (op 2) ") for failure in failures if failure.startswith("write")} == {
        "failed with ENOSPC",
        "failed with EDQUOT",
        "failed with EIO",
        "took only half of its bytes",
        "took only half of its bytes; 1 later operation failed with ENOSPC",
    }


def test_removing_a_folder_is_one_operation(home: Path) -> None:
    gate = FailingGate(None)
    with Recorder(home, gate):
        os.rmdir(home / "folder")
    assert [intent.kind for intent in gate.intents] == ["rmdir"]


def test_a_failure_is_named_by_the_error_that_is_raised() -> None:
    assert [Failure(1, error).errno_name for error in ("EIO", "short", "short_EIO")] == ["EIO", "", "EIO"]
