"""Exploring: one run, every disk that a crash could have left, and a check of each."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import CheckFails, Model
from pytest_wfstate.faults.disk.losses import CrashPoint
from tests.unit.faults.conftest import Lab, Tried, accept, note_is_kept
from tests.unit.faults.disk.notes import append, read, save, save_without_file_fsync, sync, write


def points_in_memory() -> int:
    gc.collect()
    return sum(type(candidate) is CrashPoint for candidate in gc.get_objects())


SYNCS = {"file": os.fsync}


class TestHeldCalls:
    """What durable code calls counts, wherever it keeps the call."""

    def saved(self, crash: Crash, home: Path, sync: Any) -> None:
        path = home / "note.tmp"
        write(path, b"text")
        for target in (path, home):
            fd = os.open(target, os.O_RDONLY)
            sync(fd)
            os.close(fd)
            if target == path:
                os.replace(path, home / "note")
        crash.ack("text")

    def test_durable_code_that_keeps_fsync_in_a_dict_is_clean(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            self.saved(crash, home, lambda fd: SYNCS["file"](fd))

        assert crash.explore(workload, note_is_kept).verdict == "CLEAN"

    def test_code_that_keeps_fsync_but_does_not_call_it_is_caught(self, crash: Crash) -> None:
        with pytest.raises(CrashBug):
            crash.explore(lambda home: self.saved(crash, home, lambda _: SYNCS.get("file")), note_is_kept)


class TestSetup:
    def test_what_it_leaves_is_on_the_disk(self, crash: Crash) -> None:
        tried = Tried()
        crash.explore(lambda home: append(home / "log", "two"), tried, setup=lambda home: write(home / "log", b"one\n"))
        assert {files["log"] for files, _ in tried} == {b"one\n", b"one\ntwo\n", b"one\n" + bytes(4)}

    def test_is_not_recorded(self, crash: Crash) -> None:
        def setup(home: Path) -> None:
            crash.ack("setup")
            save(home, "old", "old")

        tried = Tried()
        explored = crash.explore(lambda home: sync(home), tried, setup=setup)
        assert explored.distinct == 1
        assert tried == [({"old": b"old"}, [])] * 2  # once without a crash


class TestErrors:
    def test_an_exception_in_the_workload_or_the_setup_surfaces_as_itself(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            raise LookupError("mine")

        for arguments in ({"workload": workload}, {"workload": accept, "setup": workload}):
            with pytest.raises(LookupError, match=r"^mine$") as caught:
                crash.explore(check=accept, **arguments)
            assert caught.traceback[-1].name == "workload"

    def test_a_check_that_always_fails_is_not_a_violation(self, crash: Crash) -> None:
        def check(disk: Disk) -> None:
            assert read(disk.home) == "other"

        with pytest.raises(CheckFails, match=r"^Your check fails even without a crash: AssertionError") as caught:
            crash.explore(lambda home: save(home, "text"), check)
        assert isinstance(caught.value.__cause__, AssertionError)

    @pytest.mark.parametrize("raised", [pytest.fail.Exception("no"), SystemExit(1), OSError("no")], ids=repr)
    def test_a_check_may_fail_in_any_way(self, crash: Crash, raised: BaseException) -> None:
        def workload(home: Path) -> None:
            save_without_file_fsync(home, "text")

        def check(disk: Disk) -> None:
            if read(disk.home) not in (None, "text"):
                raise raised

        with pytest.raises(CrashBug, match=f"the check said  .*{type(raised).__name__}"):
            crash.explore(workload, check)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"model": "ntfs"}, r"^model is 'ntfs', which is unknown\. One of: kill, ext4, xfs, posix\.$"),
            ({"model": ""}, "^model is '', which is unknown"),
            ({"depth": 3}, r"^depth is 3\. It is 1 \(crash the workload\) or 2"),
            ({"depth": "2"}, "^depth is '2'"),
            ({"children": "all"}, r"^children='all' is unknown\. Pass 'forbid', or 'readonly'"),
            ({"unmeasured": "pass"}, r"^unmeasured is 'pass', which is unknown\. One of: fail, skip\.$"),
        ],
    )
    def test_a_wrong_argument_is_refused(self, crash: Crash, wrong: dict[str, Any], message: str) -> None:
        ran: list[Path] = []
        with pytest.raises(ValueError, match=message):
            crash.explore(ran.append, accept, **wrong)
        assert not ran

    def test_an_ack_that_cannot_be_copied_is_refused_where_it_is_made(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack(number for number in range(3))

        with pytest.raises(TypeError, match=r"generator.* cannot be acknowledged, because it cannot be copied"):
            crash.explore(workload, accept)

    def test_after_any_error_the_next_exploration_works(self, crash: Crash) -> None:
        for wrong in (KeyboardInterrupt(), ValueError()):

            def workload(home: Path, wrong: BaseException = wrong) -> None:
                save(home, "text")
                raise wrong

            with pytest.raises(type(wrong)):
                crash.explore(workload, accept)
        assert crash.explore(lambda home: save(home, "text"), accept).verdict == "CLEAN"


class TestDistinct:
    def test_no_disk_is_checked_twice_with_the_same_promises(self, crash: Crash) -> None:
        tried = Tried()

        def workload(home: Path) -> None:
            for number in (1, 2):
                write(home / "note", str(number).encode())
                sync(home)
                crash.ack(number)

        explored = crash.explore(workload, tried)
        assert len(set(map(str, tried[1:]))) == explored.tried == explored.distinct

    def test_the_same_disk_with_another_promise_is_another(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack(1)
            crash.ack(2)

        tried = Tried()
        crash.explore(workload, tried)
        assert [acked for files, acked in tried[1:] if files == {"note": b"text"}] == [[], [1], [1, 2]]


class TestSeveralExplorations:
    def test_each_starts_from_an_empty_home_and_is_not_kept_in_memory(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            assert list(home.iterdir()) == []
            save(home, "text")

        before = points_in_memory()
        crash.explore(workload, accept)
        crash.explore(workload, accept)
        assert points_in_memory() <= before

    def test_each_finds_the_world_as_it_was(self, crash: Crash) -> None:
        ledger = crash.world([])

        def workload(home: Path) -> None:
            save(home, "text")
            ledger.append("sent")

        def check(_: Disk) -> None:
            ledger.append("checked")

        models: tuple[Model, ...] = ("kill", "posix")
        for model in models:
            assert ledger == []
            crash.explore(workload, check, model=model)
        assert ledger == []


class TestTwoLabs:
    """A test may have two labs, and an acknowledgement to one is not recorded by the other."""

    def test_each_has_its_own_acknowledgements(self, lab: Lab) -> None:
        ours, theirs = lab(), lab()
        acked: list[list[str]] = []

        def workload(home: Path) -> None:
            save(home, "text")
            ours.ack("ours")
            theirs.ack("theirs")

        ours.explore(workload, lambda disk: acked.append(disk.acked))
        theirs.explore(workload, lambda disk: acked.append(disk.acked))
        assert ["ours"] in acked
        assert ["theirs"] in acked
        assert all(len(each) < 2 for each in acked)

    def test_so_has_a_process_that_is_killed(self, lab: Lab) -> None:
        ours, theirs = lab(), lab()

        def workload(home: Path) -> None:
            ours.ack("ours")
            theirs.ack("theirs")
            save(home, "text")

        assert ours.kill(workload, at=ours.before("rename")).acked == ["ours"]
