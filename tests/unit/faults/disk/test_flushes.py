"""What is flushed by what, on real files, in the crash lab."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import PROFILES, Model
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import write
from tests.unit.faults.disk.small_disks import POWER

PAGE = 4096


def by_flag(flag: int) -> Callable[[int, bytes, int], int]:
    def write_at(fd: int, data: bytes, offset: int) -> int:
        synchronous = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | flag)
        try:
            return os.pwrite(synchronous, data, offset)
        finally:
            os.close(synchronous)

    return write_at


WAYS: dict[str, Callable[[int, bytes, int], int]] = {
    "O_DSYNC": by_flag(os.O_DSYNC),
    "O_SYNC": by_flag(os.O_SYNC),
    "RWF_DSYNC": lambda fd, data, offset: os.pwritev(fd, [data], offset, os.RWF_DSYNC),
    "RWF_SYNC": lambda fd, data, offset: os.pwritev(fd, [data], offset, os.RWF_SYNC),
}


@pytest.mark.parametrize("model", POWER)
@pytest.mark.parametrize("way", WAYS)
class TestASynchronousWrite:
    """A header at the beginning of a file, and a record in its second page."""

    @staticmethod
    def explore(crash: Crash, model: Model, write_header: bool, way: str) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "log", os.O_RDWR)
            if write_header:
                os.pwrite(fd, b"header", 0)
            WAYS[way](fd, b"record", PAGE)
            os.close(fd)
            crash.ack("record")

        def check(disk: Disk) -> None:
            data = (disk.home / "log").read_bytes()
            if disk.acked:
                assert data[PAGE:] == b"record"
                assert not write_header or data.startswith(b"header")

        crash.explore(workload, check, setup=lambda home: write(home / "log", b"------"), model=model)

    def test_is_durable(self, crash: Crash, model: Model, way: str) -> None:
        self.explore(crash, model, write_header=False, way=way)

    def test_does_not_flush_other_pages(self, crash: Crash, model: Model, way: str) -> None:
        with pytest.raises(CrashBug, match="write of 6 bytes at 0 to log"):
            self.explore(crash, model, write_header=True, way=way)


@pytest.mark.parametrize("model", POWER)
def test_sqlite_in_wal_mode_that_retries_after_a_failed_fsync_is_durable(lab: Lab, model: Model) -> None:
    """The second try writes the same bytes to the same place, which the first had added to the log."""
    crash = lab(model=model, bounds=PROFILES["quick"])

    def setup(home: Path) -> None:
        with contextlib.closing(sqlite3.connect(home / "db")) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table t (x)")

    def workload(home: Path) -> None:
        with contextlib.closing(sqlite3.connect(home / "db", isolation_level=None)) as connection:
            connection.execute("pragma synchronous = full")
            for number in range(3):
                for _ in range(2):
                    with contextlib.suppress(sqlite3.OperationalError):
                        connection.execute("insert into t values (?)", (number,))
                        crash.ack(number)
                        break

    def check(disk: Disk) -> None:
        with contextlib.closing(sqlite3.connect(disk.home / "db")) as connection:
            rows = [number for (number,) in connection.execute("select x from t")]
        assert set(disk.acked) <= set(rows)

    crash.errors(workload, check, setup=setup, errors=("EIO",))


@pytest.mark.parametrize("model", ["ext4", "xfs"])
def test_a_truncate_before_a_durable_name_is_durable_where_there_is_a_journal(crash: Crash, model: Model) -> None:
    def workload(home: Path) -> None:
        os.truncate(home / "log", 0)
        write(home / "done", b"")
        fd = os.open(home, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        crash.ack("done")

    def check(disk: Disk) -> None:
        assert not disk.acked or (disk.home / "log").read_bytes() == b""

    crash.explore(workload, check, setup=lambda home: write(home / "log", b"old"), model=model)
    with pytest.raises(CrashBug, match="truncate log to 0 bytes"):
        crash.explore(workload, check, setup=lambda home: write(home / "log", b"old"), model="posix")


def test_a_torn_truncate_is_described(crash: Crash) -> None:
    def check(disk: Disk) -> None:
        assert b"\0" not in (disk.home / "log").read_bytes()

    with pytest.raises(CrashBug, match=r"truncate log to 2 bytes, torn \(zeros reached the disk at bytes 2 to 5\)"):
        crash.explore(
            lambda home: os.truncate(home / "log", 2),
            check,
            setup=lambda home: write(home / "log", b"old---"),
            model="xfs",
        )
