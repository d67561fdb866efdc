"""Killing: a child really dies by SIGKILL at a point, and leaves its disk."""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_wfstate import Crash, NeverReached
from pytest_wfstate.faults.crash.points import Point
from tests.unit.faults.conftest import accept
from tests.unit.faults.crash.killed import Worker, names, work
from tests.unit.faults.disk.notes import read, save


class TestReally:
    def test_buffers_are_lost_and_nothing_is_unwound(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            atexit.register((home / "atexit").touch)
            with open(home / "note", "w") as file:
                file.write("written, and not flushed")
                try:
                    (home / "mark").touch()
                finally:
                    (home / "finally").touch()

        disk = crash.kill(workload, at=crash.after("create", "mark"))
        assert names(disk.home) == ["mark", "note"]
        assert read(disk.home) == ""

    def test_locks_are_free(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            fd = os.open(home / "lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b"mine")

        disk = crash.kill(workload, at=crash.after("write"))
        fd = os.open(disk.home / "lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)

    def test_memory_of_this_process_is_unchanged(self, crash: Crash) -> None:
        done: list[str] = []

        def workload(home: Path) -> None:
            done.append("in the child")
            save(home, "text")

        crash.kill(workload, at=crash.before("rename"))
        assert done == []

    def test_its_own_children_do_not_keep_the_test_waiting(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            reads, writes = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(writes)
                os.read(reads, 1)  # until the other end is gone
                os._exit(0)
            (home / "mark").touch()

        assert names(crash.kill(workload, at=crash.after("create"), timeout=20).home) == ["mark"]


class TestWorlds:
    @pytest.mark.parametrize(
        ("point", "sent"), [("before", []), ("after", ["one"]), ("between", ["one", "two"])], ids=str
    )
    def test_methods_of_a_world_are_points(self, crash: Crash, point: str, sent: list[str]) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            mails.append("one")
            mails.append("two")
            save(home, "sent")

        at = crash.between(mails.append, "rename") if point == "between" else getattr(crash, point)(mails.append)
        disk = crash.kill(workload, at=at)
        assert mails == sent
        assert disk.effects == [f"append({mail!r})" for mail in sent]

    def test_methods_of_two_worlds_are_different_points(self, crash: Crash) -> None:
        mails, refunds = crash.world([]), crash.world([])

        def workload(home: Path) -> None:
            mails.append(1)
            refunds.append(2)
            save(home, "text")

        crash.kill(workload, at=crash.after(refunds.append))
        assert (mails, refunds) == ([1], [2])


class TestNeverReached:
    def test_lists_what_the_run_did(self, crash: Crash) -> None:
        mails = crash.world([])

        def workload(home: Path) -> None:
            mails.append("x")
            Worker(home).run()

        with pytest.raises(NeverReached) as caught:
            crash.kill(workload, at=crash.between(Worker.claim, "fsync"))
        assert str(caught.value) == (
            "The workload ended without reaching between Worker.claim and fsync. It did:\n"
            "  effect append\n"
            "  create claimed\n"
            "  return from Worker.claim\n"
            "  create result.tmp\n"
            "  write result.tmp\n"
            "  rename result.tmp to result\n"
            "  create completed\n"
            "Choose a point among these."
        )

    def test_shows_what_the_workload_raised(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            save(home, "text")
            raise LookupError("something else is wrong")

        with pytest.raises(NeverReached) as caught:
            crash.kill(workload, at=crash.before("unlink"))
        text = str(caught.value)
        assert text.startswith("The workload raised before it reached before unlink:\nTraceback")
        assert text.endswith("LookupError: something else is wrong\n")
        assert 'raise LookupError("something else is wrong")' in text

    def test_says_that_it_took_too_long(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            (home / "pid").write_text(str(os.getpid()))
            signal.pause()

        homes: list[Path] = []
        with pytest.raises(NeverReached, match="The child did not reach before unlink in 1 s, and was killed"):
            crash.kill(workload, at=crash.before("unlink"), setup=homes.append, timeout=1)
        with pytest.raises(ProcessLookupError):
            os.kill(int((homes[0] / "pid").read_text()), 0)

    @pytest.mark.parametrize(
        ("workload", "at", "message"),
        [
            (accept, Crash.before("write"), "without reaching before write. It did:\n  nothing\n"),
            (work, Crash.after("rename", "*.json", nth=3), r"after rename of \*\.json, occurrence 3\. It did"),
            (lambda _: os._exit(3), Crash.before("write"), "died on its own before it .* before write: exit status 3"),
            (lambda _: os.kill(os.getpid(), signal.SIGKILL), Crash.before("write"), "before write: signal 9"),
        ],
        ids=["nothing was done", "not that often", "exited", "killed"],
    )
    def test_says_why(self, crash: Crash, workload: Callable[..., None], at: Point, message: str) -> None:
        with pytest.raises(NeverReached, match=message):
            crash.kill(workload, at=at)


def test_setup_runs_first(crash: Crash) -> None:
    async def setup(home: Path) -> None:
        save(home, "old")

    disk = crash.kill(lambda home: save(home, "new"), at=crash.before("rename"), setup=setup)
    assert read(disk.home) == "old"
    assert names(disk.home) == ["note", "note.tmp"]


def test_the_disk_has_what_was_acknowledged(crash: Crash) -> None:
    async def workload(home: Path) -> None:
        crash.ack({"one": 1})
        save(home, "text")
        crash.ack("never")

    assert crash.kill(workload, at=crash.before("rename")).acked == [{"one": 1}]


def test_each_kill_has_a_home_of_its_own(crash: Crash) -> None:
    first = crash.kill(work, at=crash.before("rename"))
    second = crash.kill(work, at=crash.after("rename"))
    assert (names(first.home), names(second.home)) == (["a.json.tmp"], ["a.json"])
