"""I/O errors: each file operation fails once, and the store must neither lie nor break."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import CheckFails, Crash, CrashResult, Disk, ErrorBug, NotMeasured, TraceChanged
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.faults.crash.io_errors import advice_on_fsync
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.trace.ops import HOME, Fsync, Trace, Tree
from tests.unit.faults.conftest import Lab, accept
from tests.unit.faults.disk.notes import read, save, sync, write

Save = Callable[[Path, str], None]


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def save_well(home: Path, text: str) -> None:
    """Save a note so that whatever fails, the old or the new one is there, and the caller knows."""
    fd = os.open(home / "note.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(home / "note.tmp", home / "note")
    sync(home)


def swallow(save: Save) -> Save:
    """Make a store that ignores errors."""

    def swallowing(home: Path, text: str) -> None:
        with contextlib.suppress(OSError):
            save(home, text)

    return swallowing


def save_without_looking(home: Path, text: str) -> None:
    """Assume that os.write writes everything."""
    write(home / "note.tmp", text.encode())
    sync(home / "note.tmp")
    os.replace(home / "note.tmp", home / "note")
    sync(home)


def sync_twice(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError:
        os.fsync(fd)


def save_with_a_second_fsync(home: Path, text: str) -> None:
    """Retry a failed fsync. The second one succeeds, and flushes nothing."""
    fd = os.open(home / "note.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    write_all(fd, text.encode())
    sync_twice(fd)
    os.close(fd)
    os.replace(home / "note.tmp", home / "note")
    sync(home)


def save_again(home: Path, text: str) -> None:
    """Write everything again if something has failed."""
    try:
        save_well(home, text)
    except OSError:
        save_well(home, text)


def run(crash: Crash, save: Save, errors: tuple[str, ...] = ("ENOSPC", "EIO", "short")) -> CrashResult:
    """Save over an old note while things fail."""

    def workload(home: Path) -> None:
        save(home, "new")
        crash.ack("new")

    def check(disk: Disk) -> None:
        wanted = ("new",) if disk.acked else ("old", "new")
        assert read(disk.home) in wanted
        save_well(disk.home, "later")
        assert read(disk.home) == "later"

    return crash.errors(workload, check, setup=lambda home: save_well(home, "old"), errors=errors)


class TestStores:
    @pytest.mark.parametrize("save", [save_well, save_again])
    def test_one_that_raises_its_errors_passes(self, crash: Crash, save: Save) -> None:
        explored = run(crash, save)
        assert (explored.verdict, explored.skipped) == ("CLEAN", 0)
        assert explored.possible >= explored.distinct == explored.tried > 10

    def test_one_that_swallows_a_full_disk_is_caught(self, lab: Lab) -> None:
        results: list[CrashResult] = []
        with pytest.raises(ErrorBug) as caught:
            run(lab(done=results.append), swallow(save_well), ("ENOSPC",))
        assert [explored.verdict for explored in results] == ["VIOLATED"]
        text = re.sub(r"   [^ ]*test_io_errors.py:\d+", "", str(caught.value))
        assert text.splitlines()[:9] == [
            "An I/O error can leave a disk that fails the check.",
            "",
            "  acknowledged    'new'",
            "  what failed     create note.tmp (op 1) failed with ENOSPC",
            '                      fd = os.open(home / "note.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)',
            "  the workload    returned as if nothing had failed",
            "  on the disk     note: 3 bytes",
            "  the check said  AssertionError: assert 'old' in ('new',)",
            "                   +  where 'old' = read(PosixPath('home'))",
        ]

    def test_one_that_ignores_a_short_write_is_caught(self, crash: Crash) -> None:
        assert run(crash, save_well, ("short",)).tried == 2  # the run without an error, and that of the one write
        with pytest.raises(ErrorBug) as caught:
            run(crash, save_without_looking, ("short",))
        assert "what failed     write note.tmp (op 2) took only half of its bytes" in str(caught.value)
        assert "assert 'n' in ('new',)" in str(caught.value)

    def test_one_that_retries_an_fsync_is_caught(self, crash: Crash) -> None:
        with pytest.raises(ErrorBug) as caught:
            run(crash, save_with_a_second_fsync, ("EIO",))
        text = str(caught.value)
        assert text.startswith("An I/O error followed by a power cut (posix model) can leave a disk that fails the ")
        assert "  what failed     fsync note.tmp (op 3) failed with EIO  " in text
        assert "  the workload    returned as if nothing had failed\n" in text
        assert "  then it died    the power was cut, after " in text
        assert "  lost            write of 3 bytes at 0 to note.tmp  " in text
        assert "A failed fsync marks dirty pages clean: a second fsync flushes nothing." in text
        assert "Write everything again, to another file" in text
        assert "docs/crash.md#a-failed-fsync shows how" in text

    def test_one_that_retries_an_fsync_of_a_folder_is_caught(self, crash: Crash) -> None:
        def sync_home_again(home: Path, text: str) -> None:
            write(home / "note.tmp", text.encode())
            sync(home / "note.tmp")
            os.replace(home / "note.tmp", home / "note")
            try:
                sync(home)
            except OSError:
                sync(home)

        with pytest.raises(ErrorBug) as caught:
            run(crash, sync_home_again, ("EIO",))
        assert "  what failed     fsync . (op 6) failed with EIO  " in str(caught.value)
        assert "  lost            rename note.tmp to note  " in str(caught.value)
        assert "acknowledged    'new'" in str(caught.value)
        assert "Change the folder again before the next fsync" in str(caught.value)

    def test_one_that_breaks_afterwards_is_caught(self, crash: Crash) -> None:
        def save_once(home: Path, text: str) -> None:
            os.close(os.open(home / "note.tmp", os.O_CREAT | os.O_EXCL))
            save_well(home, text)

        def workload(home: Path) -> None:
            save_once(home, "new")

        def check(disk: Disk) -> None:
            save_once(disk.home, "later")

        with pytest.raises(
            ErrorBug, match=r"the workload    raised OSError: \[Errno 28\] No space left on device: 'note.tmp'"
        ):
            crash.errors(workload, check, errors=("ENOSPC",))


class TestEveryOp:
    def test_fails_once(self, crash: Crash) -> None:
        failed = []

        def check(disk: Disk) -> None:
            failed.append(disk.crash)

        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                save_well(home, "text")

        explored = crash.errors(workload, check, errors=("EIO",))
        ops = ["create note.tmp", "write note.tmp", "fsync note.tmp", "rename note.tmp", "fsync ."]
        expected = ["nothing failed", *(f"{op} (op {number}) failed with EIO" for number, op in enumerate(ops, 1))]
        assert [what for what in failed if what in expected] == expected
        assert explored.tried == len(failed)

    def test_that_needs_room_fails_on_a_full_disk(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                save(home, "text")
                (home / "note").unlink()

        failed = []
        crash.errors(workload, lambda disk: failed.append(disk.crash), errors=("ENOSPC",))
        failed = [crash.split()[0] for crash in failed if "the power was cut" not in crash]
        assert failed == ["nothing", "create", "write", "close", "fsync", "rename"]

    def test_leaves_nothing_behind_when_it_fails(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            with contextlib.suppress(OSError):
                write(home / "note", b"text")

        left = []
        crash.errors(workload, lambda disk: left.append(read(disk.home)), errors=("ENOSPC", "short"))
        assert left == ["text", None, "", "", "te"]

    def test_starts_from_the_disk_and_the_world_of_the_setup(self, crash: Crash) -> None:
        mails = crash.world([])

        def setup(home: Path) -> None:
            mails.append("setup")
            save(home, "old")

        def workload(home: Path) -> None:
            assert mails == ["setup"]
            mails.append("new")
            assert read(home) == "old"
            with contextlib.suppress(OSError):
                save_well(home, "new")

        def check(disk: Disk) -> None:
            assert disk.effects == ["append('new')"]
            mails.append("by the check")

        assert crash.errors(workload, check, setup=setup).tried > 5
        assert mails == []

    def test_of_sqlite_fails_too(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            with contextlib.closing(sqlite3.connect(home / "db", isolation_level=None)) as connection:
                connection.execute("create table t (x)")
                crash.ack("t")

        def check(disk: Disk) -> None:
            with contextlib.closing(sqlite3.connect(disk.home / "db")) as connection:
                assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
                tables = connection.execute("select count(*) from sqlite_master").fetchone()
            assert tables == (1,) or not disk.acked

        assert crash.errors(workload, check, errors=("ENOSPC",)).tried > 3

    @pytest.mark.parametrize("error", ["EDQUOT", "EROFS"])
    def test_fails_with_any_errno(self, crash: Crash, error: str) -> None:
        raised = set()

        def workload(home: Path) -> None:
            try:
                save_well(home, "text")
            except OSError as error:
                raised.add(error.errno)

        crash.errors(workload, accept, errors=(error,))
        assert raised == {getattr(errno, error)}


class TestWrong:
    @pytest.mark.parametrize(
        ("argument", "error", "message"),
        [
            *(
                ({"errors": ("EIO", name)}, ValueError, f"^'{name}' is not a known error. Give names from errno, such")
                for name in ("ENOSPACE", "errorcode", "", "Short")
            ),
            ({"errors": "EIO"}, TypeError, r"errors is 'EIO', one string\. Give a tuple of names: errors=\('EIO',\)"),
            ({"errors": ()}, ValueError, "errors is empty, so nothing would fail"),
            ({"unmeasured": "pass"}, ValueError, r"unmeasured is 'pass', which is unknown\. One of: fail, skip\."),
        ],
    )
    def test_an_argument_is_refused(
        self, crash: Crash, argument: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            crash.errors(accept, accept, **argument)

    def test_an_exception_of_the_workload_itself_surfaces(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            crash.errors(workload, accept)

    def test_a_check_that_always_fails_is_not_a_violation(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home) == "other"

        with pytest.raises(CheckFails, match="Your check fails even without an I/O error: AssertionError"):
            crash.errors(lambda home: save(home, "text"), check)

    def test_a_workload_that_is_not_deterministic_is_not_measured(self, crash: Crash) -> None:
        runs = iter(range(100))

        def workload(home: Path) -> None:
            for _ in range(5 - next(runs)):
                with contextlib.suppress(OSError):
                    (home / "note").touch()
                    (home / "note").unlink()

        with pytest.raises(
            NotMeasured, match=r"operation \d+, chosen to fail, was never reached: the workload is not deterministic"
        ):
            crash.errors(workload, accept, errors=("EIO",))


class TestResult:
    def test_counts_what_a_bound_skipped(self, lab: Lab) -> None:
        explored = run(lab(bounds=Bounds(states=3)), save_well)
        assert explored.tried == 3
        assert explored.skipped > 3

    def test_every_op_has_failed_before_the_first_power_cut(self, crash: Crash) -> None:
        cut: list[bool] = []
        crash.errors(lambda home: save_well(home, "new"), lambda disk: cut.append("the power was cut" in disk.crash))
        assert cut == sorted(cut)
        assert True in cut


class TestReplay:
    """An error is found again by its name, the op that failed, and a crash if there was one."""

    @staticmethod
    def bug(crash: Crash, save: Save) -> ErrorBug:
        with pytest.raises(ErrorBug) as caught:
            run(crash, save)
        return caught.value

    @pytest.mark.parametrize(
        ("save", "pattern"),
        [
            (swallow(save_well), r"ENOSPC-1-[0-9a-f]{8}"),
            (save_without_looking, r"short-2-[0-9a-f]{8}"),
            (save_with_a_second_fsync, r"ENOSPC-3-[0-9a-f]{8}\+posix-\d+-[\d._]+-[0-9a-f]{8}"),
        ],
    )
    def test_the_same_disk_is_reported(self, lab: Lab, save: Save, pattern: str) -> None:
        first = self.bug(lab(), save)
        assert re.fullmatch(pattern, first.replay_id)
        again = self.bug(lab(replay=ReplayId.read(first.replay_id)), save)
        assert again.replay_id == first.replay_id
        assert str(again).splitlines()[:-1] == str(first).splitlines()[:-1]
        assert str(again).splitlines()[-1] == "This is one disk, replayed."

    def test_only_that_run_is_made_again(self, lab: Lab) -> None:
        results: list[CrashResult] = []
        first = self.bug(lab(), save_without_looking)
        self.bug(lab(replay=ReplayId.read(first.replay_id), done=results.append), save_without_looking)
        assert [(result.replayed, result.replay) for result in results] == [(True, first.replay_id)]

    def test_a_disk_that_passes_the_check_now_is_clean(self, lab: Lab) -> None:
        first = self.bug(lab(), save_with_a_second_fsync)
        crash = lab(replay=ReplayId.read(first.replay_id))

        def workload(home: Path) -> None:
            save_with_a_second_fsync(home, "new")
            crash.ack("new")

        crashes: list[str] = []
        explored = crash.errors(
            workload, lambda disk: crashes.append(disk.crash), setup=lambda home: save_well(home, "old")
        )
        assert (explored.verdict, explored.tried, explored.replayed) == ("CLEAN", 1, True)
        assert crashes[0] == "nothing failed"
        assert crashes[1].startswith("fsync note.tmp (op 3) failed with ENOSPC; later the power was cut, after ")
        assert len(crashes) == 2

    def test_a_run_that_has_changed_is_an_error(self, lab: Lab) -> None:
        first = self.bug(lab(), save_without_looking)
        with pytest.raises(TraceChanged, match="The run differs from the one that 'short-2-"):
            run(lab(replay=ReplayId.read(first.replay_id)), save_again)

    @pytest.mark.parametrize("replay", ["EIO-99-00000000", "posix-1-0-00000000"])
    def test_an_op_that_is_gone_is_an_error(self, lab: Lab, replay: str) -> None:
        with pytest.raises(TraceChanged, match=f"The run differs from the one that '{replay}' was made for"):
            run(lab(replay=ReplayId.read(replay)), save_well)

    def test_another_op_in_its_place_is_an_error(self, lab: Lab) -> None:
        """The run is the same up to the op that fails, which is the last."""

        def explore(crash: Crash, first: Callable[[Path], None]) -> None:
            def check(disk: Disk) -> None:
                assert any(disk.home.iterdir())

            def workload(home: Path) -> None:
                with contextlib.suppress(OSError):
                    first(home / "note")

            crash.errors(workload, check, errors=("EIO",))

        with pytest.raises(ErrorBug) as caught:
            explore(lab(), Path.touch)
        with pytest.raises(TraceChanged):
            explore(lab(replay=ReplayId.read(caught.value.replay_id)), Path.mkdir)

    def test_an_id_of_an_error_does_not_fit_an_exploration(self, lab: Lab) -> None:
        with pytest.raises(TraceChanged, match="'EIO-1-00000000' was made"):
            lab(replay=ReplayId.read("EIO-1-00000000")).explore(lambda home: save_well(home, "x"), accept)

    def test_errors_count_among_the_explorations_of_a_test(self, lab: Lab) -> None:
        def both(crash: Crash) -> None:
            crash.explore(lambda home: save_well(home, "x"), accept)
            run(crash, save_without_looking)

        with pytest.raises(ErrorBug) as first:
            both(lab())
        assert first.value.replay_id.startswith("2:short-2-")
        explored: list[CrashResult] = []
        with pytest.raises(ErrorBug) as again:
            both(lab(replay=ReplayId.read(first.value.replay_id), done=explored.append))
        assert again.value.replay_id == first.value.replay_id
        assert [result.replayed for result in explored] == [False, True]


def test_a_world_that_was_changed_behind_its_stand_in_is_not_measured(crash: Crash) -> None:
    class Bank:
        def __init__(self) -> None:
            self.refunds: list[str] = []

    bank = crash.world(Bank())

    def workload(home: Path) -> None:
        save(home, "text")
        bank.refunds.append("order-1")

    with pytest.raises(NotMeasured, match="was changed without its stand-in"):
        crash.errors(workload, accept)


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("note.tmp", b"text", "Write everything again, to another file"),
        ("db", b"SQLite format 3\0" + bytes(84), "Close the connection, and repeat the transaction on a new one"),
        ("", b"", "Change the folder again before the next fsync"),
    ],
    ids=["file", "database", "folder"],
)
def test_advice_on_a_failed_fsync_depends_on_what_was_not_flushed(name: str, data: bytes, advice: str) -> None:
    start, node = Tree(), HOME
    if name:
        node = 1
        start.entries[HOME, name], start.kinds[node], start.data[node] = node, "file", data
    lines = advice_on_fsync(Trace(start, [Fsync(node, failed=True)]))
    assert advice in lines[1]
    assert lines[1].endswith("docs/crash.md#a-failed-fsync shows how.")


def test_the_page_that_the_advice_links_to_has_that_section() -> None:
    assert "### A failed fsync\n" in (Path(__file__).parents[4] / "docs" / "crash.md").read_text()
