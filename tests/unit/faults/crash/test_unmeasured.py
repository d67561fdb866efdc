"""NOT_MEASURED: what the lab could not see is never a pass, and it always says why."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, NotMeasured
from pytest_wfstate.faults.crash.clean_process import CleanProcess
from pytest_wfstate.faults.world.world import Worlds
from tests.unit.faults.conftest import Lab, accept, note_is_kept, saving
from tests.unit.faults.disk.notes import read, save, save_without_fsync, write


def write_by_child(home: Path) -> None:
    subprocess.run([sys.executable, "-S", "-c", f"open({str(home / 'note')!r}, 'w').write('text')"], check=True)


def write_by_fork(home: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    save(home, "text")


def write_by_mmap(home: Path) -> None:
    write(home / "note", b"text")
    with open(home / "note", "r+b") as file, mmap.mmap(file.fileno(), 4) as memory:
        memory[:] = b"TEXT"


def write_by_native_code(home: Path) -> None:
    libc = ctypes.CDLL(None)
    fd = libc.open(os.fsencode(home / "note"), os.O_WRONLY | os.O_CREAT, 0o600)
    libc.write(fd, b"text", 4)
    libc.close(fd)


def write_nothing(_: Path) -> None:
    pass


def write_elsewhere(home: Path) -> None:
    save(home.parent, "text")


def write_without_a_name(home: Path) -> None:
    fd = os.open(home, os.O_TMPFILE | os.O_WRONLY)
    os.write(fd, b"text")
    os.close(fd)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (write_by_child, r"A child process was started \(by subprocess"),
        (write_by_fork, r"A child process was started \(by os\.fork\)"),
        (write_by_mmap, r"note was mapped by mmap"),
        (write_by_native_code, r"The recorded ops do not explain the content of note"),
        (write_nothing, r"nothing was written below home: write to the folder that is passed to the workload"),
        (write_elsewhere, r"nothing was written below home"),
        (write_without_a_name, r"O_TMPFILE opened a file without a name in \."),
    ],
)
def test_of_a_workload(lab: Lab, workload: Any, reason: str) -> None:
    results: list[CrashResult] = []
    crash = lab(done=results.append)
    with pytest.raises(NotMeasured, match=f"^NOT_MEASURED, so neither a pass nor a violation:\n- .*{reason}"):
        crash.explore(workload, accept)
    assert [(explored.verdict, explored.tried) for explored in results] == [("NOT_MEASURED", 0)]


def test_children_that_are_readonly_may_run_but_not_write(crash: Crash) -> None:
    def workload(home: Path) -> None:
        save(home, subprocess.run(["true"], check=True).args[0])

    assert crash.explore(workload, accept, children="readonly").verdict == "CLEAN"
    with pytest.raises(NotMeasured, match="The recorded ops do not explain the content of note"):
        crash.explore(write_by_child, accept, children="readonly")


def test_a_thread_that_is_still_running(crash: Crash) -> None:
    end = threading.Event()
    threads: list[threading.Thread] = []

    def workload(home: Path) -> None:
        save(home, "text")
        threads.append(threading.Thread(target=end.wait, name="writes later"))
        threads[0].start()

    with pytest.raises(NotMeasured, match="The thread 'writes later' is still running"):
        crash.explore(workload, accept)
    end.set()
    threads[0].join()


def test_every_reason_is_listed(crash: Crash) -> None:
    def workload(home: Path) -> None:
        write_by_mmap(home)
        os.system("true")

    with pytest.raises(NotMeasured) as caught:
        crash.explore(workload, accept)
    assert str(caught.value).count("\n- ") == 3  # and the bytes that no recorded op wrote


@pytest.mark.parametrize("call", ["explore", "errors"])
def test_may_skip_the_test(crash: Crash, call: str) -> None:
    with pytest.raises(pytest.skip.Exception, match="nothing was written below home"):
        getattr(crash, call)(write_nothing, accept, unmeasured="skip")


@pytest.mark.parametrize("workload", [write_nothing, write_by_mmap])
def test_of_errors(crash: Crash, workload: Any) -> None:
    with pytest.raises(NotMeasured):
        crash.errors(workload, accept)


class TestMemory:
    """A check must not rely on what a crash would have taken."""

    def test_a_pass_that_needs_it(self, crash: Crash) -> None:
        cache: dict[str, str] = {}

        def workload(home: Path) -> None:
            save_without_fsync(home, "text")
            cache["note"] = "text"
            crash.ack("text")

        def check(disk: Disk) -> None:
            assert not disk.acked or cache.get("note") or read(disk.home) == "text"

        with pytest.raises(NotMeasured, match="the check passes in the workload's process and fails in a clean one"):
            crash.explore(workload, check)

    def test_a_pass_that_needs_it_late_in_a_long_run_is_reported_once(self, lab: Lab) -> None:
        done: list[int] = []
        results: list[CrashResult] = []

        def workload(home: Path) -> None:
            for number in range(40):
                save(home, str(number))
                done.append(number)

        def check(disk: Disk) -> None:
            assert int(read(disk.home) or 0) < 30 or len(done) == 40

        with pytest.raises(NotMeasured, match="it relies on something in memory, which a crash would have taken"):
            lab(done=results.append).explore(workload, check)
        assert [len(explored.reasons) for explored in results] == [1]

    def test_a_violation_that_is_there_only_because_of_it(self, crash: Crash) -> None:
        done: list[int] = []

        def workload(home: Path) -> None:
            save(home, "1")
            done.append(1)

        def check(disk: Disk) -> None:
            assert int(read(disk.home) or 0) == len(done)

        with pytest.raises(NotMeasured, match="the check fails in the workload's process and passes in a clean one"):
            crash.explore(workload, check)

    def test_of_setup_may_be_used(self, crash: Crash) -> None:
        """It is the test's own: setup runs once, before any crash."""
        made: list[str] = []

        def setup(home: Path) -> None:
            made.append("old")
            save(home, "old")

        def check(disk: Disk) -> None:
            assert read(disk.home) in (*made, "new")
            assert made == ["old"]

        assert crash.explore(lambda home: save(home, "new"), check, setup=setup).verdict == "CLEAN"

    def test_acks_and_worlds_may_be_of_local_classes(self, crash: Crash) -> None:
        class Receipt:
            def __init__(self, number: int) -> None:
                self.number = number

        class Bank:
            def __init__(self) -> None:
                self.receipts: list[Receipt] = []
                self.lock = threading.Lock()

            def pay(self) -> Receipt:
                with self.lock:
                    self.receipts.append(Receipt(len(self.receipts)))
                    return self.receipts[-1]

        bank = crash.world(Bank())

        def workload(home: Path) -> None:
            save(home, "text")
            crash.ack(bank.pay())

        def check(disk: Disk) -> None:
            assert [receipt.number for receipt in disk.acked] in ([], [0])
            assert len(bank.receipts) >= len(disk.acked)

        assert crash.explore(workload, check).verdict == "CLEAN"

    def test_a_check_that_cannot_be_compared_is_not_a_pass(self, crash: Crash) -> None:
        def workload(home: Path) -> None:
            class New:
                pass

            save(home, "text")
            crash.ack(New())

        with pytest.raises(NotMeasured, match=r"cannot be run in a clean process.*New does not exist in this process"):
            crash.explore(workload, accept)

    def test_a_check_that_waits_for_a_thread_of_this_process(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()  # its thread is not in a fork
            clean = CleanProcess(lambda _: pool.submit(str).result(), Worlds(), timeout=0.2)
            with pytest.raises(Exception, match=r"it did not end there in 0\.2 s: it may wait for a thread"):
                clean.check("anything")
            clean.close()

    def test_a_check_that_ends_its_process(self) -> None:
        clean = CleanProcess(lambda _: os._exit(1), Worlds())
        for _ in range(2):
            with pytest.raises(Exception, match="it ended the process"):
                clean.check("anything")
        clean.close()

    def test_what_a_check_prints_there_is_not_seen(self, crash: Crash, capfd: pytest.CaptureFixture[str]) -> None:
        def check(_: Disk) -> None:
            sys.stdout.write("one line\n")

        explored = crash.explore(lambda home: save(home, "text"), check)
        assert capfd.readouterr().out.count("one line") == explored.tried + 1


def test_a_violation_that_does_not_depend_on_memory_is_reported(crash: Crash) -> None:
    with pytest.raises(CrashBug):
        crash.explore(saving(crash, save_without_fsync), note_is_kept)
