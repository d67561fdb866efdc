"""Whatever the recorder cannot see is a reason not to trust the trace, never a silent gap."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import fileinput
import io
import itertools
import mmap
import multiprocessing.util
import os
import pty
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.crash.failing_gate import FailingGate
from pytest_wfstate.faults.record import sqlite_vfs
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.record.recording import forked, record
from tests.unit.faults.trace.texts import in_words

_AUDITED = ["rename", "remove", "mkdir", "rmdir", "link", "symlink", "truncate", "listdir", "scandir"]
_HELD = {name: itertools.repeat(getattr(os, name)) for name in _AUDITED} | {
    "open": itertools.repeat(open),
    "os.open": itertools.repeat(os.open),
    "io": itertools.repeat(io.FileIO),
}


def held(name: str) -> Any:
    """Return a real call, from an iterator that no recorder can change."""
    return next(_HELD[name])


def reasons(workload: Callable[[Path], Any], home: Path, **options: Any) -> list[str]:
    with Recorder(home, **options) as recorder:
        workload(home)
    return recorder.unmeasured


UNSEEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "open-w": (lambda home: held("open")(home / "a", "w").close(), "a was opened for writing"),
    "open-r+": (lambda home: held("open")(home / "old", "r+").close(), "old was opened for writing"),
    "FileIO": (lambda home: held("io")(home / "a", "w").close(), "a was opened for writing"),
    "os.open": (lambda home: os.close(held("os.open")(home / "a", os.O_CREAT)), "a was opened for writing"),
    "rename": (lambda home: held("rename")(home / "old", home / "a"), "old was renamed"),
    "rename-in": (lambda home: held("rename")(home.parent / "outside", home / "a"), "a was renamed"),
    "remove": (lambda home: held("remove")(home / "old"), "old was removed"),
    "mkdir": (lambda home: held("mkdir")(home / "a"), "a was created"),
    "rmdir": (lambda home: held("rmdir")(home / "folder"), "folder was removed"),
    "link": (lambda home: held("link")(home / "old", home / "a"), "a was linked"),
    "symlink": (lambda home: held("symlink")("x", home / "a"), "a was created"),
    "truncate": (lambda home: held("truncate")(home / "old", 9), "old was truncated"),
}


@pytest.mark.parametrize(("call", "change"), UNSEEN.values(), ids=UNSEEN)
def test_a_call_that_bypasses_the_stand_ins_is_detected(call: Callable[[Path], Any], change: str, home: Path) -> None:
    (home.parent / "outside").touch()
    assert reasons(call, home)[0].startswith(f"{change} by a call that the recorder could not see")


def test_an_unseen_call_through_a_descriptor_is_detected(home: Path) -> None:
    def workload(home: Path) -> None:
        fd = os.open(home, os.O_RDONLY)
        held("mkdir")("a", dir_fd=fd)
        held("rmdir")("a", dir_fd=fd)
        os.close(fd)
        held("io")(os.open(home / "old", os.O_RDWR), "r+").close()

    changes = [reason.split(" by ")[0] for reason in reasons(workload, home)]
    assert changes == ["a was created", "a was removed", "old was opened for writing"]


def read_unseen(home: Path) -> None:
    held("open")(home / "old").close()
    held("io")(home / "a").close()
    held("listdir")(home)
    with contextlib.chdir(home), held("scandir")():
        pass
    held("listdir")(home.parent)


def test_unseen_reads_are_detected_if_errors_are_injected(home: Path) -> None:
    """They cannot fail, so a store that handles that wrongly would pass."""
    (home / "a").touch()
    unseen = [reason.split(" by ")[0] for reason in reasons(read_unseen, home, gate=FailingGate(None))]
    assert unseen == ["old was opened for reading", "a was opened for reading", ". was listed"]


def test_reads_are_seen_however_they_are_made_if_errors_are_injected(home: Path) -> None:
    def workload(home: Path) -> None:
        shutil.copytree(home, home / "copy")
        shutil.rmtree(home / "copy")
        assert sorted(home.rglob("*")) == sorted([home / "old", home / "folder"])
        assert [line.strip() for line in fileinput.input(home / "old")] == ["12345"]
        with open(home / "old", opener=os.open) as file, os.fdopen(os.open(home / "old", os.O_RDONLY)) as other:
            assert file.read() == other.read()

    assert reasons(workload, home, gate=FailingGate(None)) == []


def test_unseen_reads_and_unseen_changes_outside_home_are_not_reasons(home: Path) -> None:
    def workload(home: Path) -> None:
        (home / "a").touch()
        read_unseen(home)
        os.close(held("os.open")(home, os.O_RDONLY))
        held("open")(home.parent / "a", "w").close()
        held("rename")(home.parent / "a", home.parent / "b")
        (home / "b").write_bytes(b"1")

    assert reasons(workload, home) == []


def test_writes_through_an_older_file_object_are_detected(home: Path) -> None:
    with open(home / "old", "a") as file:

        def workload(home: Path) -> None:
            (home / "a").touch()
            file.write("more")
            file.flush()

        (reason,) = reasons(workload, home)
    assert reason.startswith("The recorded ops do not explain the content of old. ")
    assert "a file object that was opened before recording began" in reason


def test_at_most_three_paths_are_named(home: Path) -> None:
    files = [open(home / name, "w") for name in "abcde"]

    def workload(_: Path) -> None:
        for file in files:
            file.write("1")
            file.close()

    (reason,) = reasons(workload, home)
    assert reason.startswith("The recorded ops do not explain the content of a, b, c and 2 more. ")


@pytest.mark.parametrize(
    "remove",
    [lambda home: os.unlink(home / "old"), lambda home: os.rename(home / "new", home / "old")],
    ids=["unlink", "rename"],
)
def test_unseen_writes_to_a_removed_file_are_detected(remove: Callable[[Path], Any], home: Path) -> None:
    (home / "new").touch()
    with open(home / "old", "ab", buffering=0) as file:

        def workload(home: Path) -> None:
            with open(home / "old", "ab") as seen:
                seen.write(b"6")
            file.write(b"78")
            remove(home)

        (reason,) = reasons(workload, home)
    assert reason == (
        "The recorded ops do not explain the content of old when it was removed or replaced: it had 8 bytes, of "
        "which 6 were recorded."
    )


@pytest.mark.parametrize("bring_in", ["rename", "link", "rename of its folder"])
def test_unseen_writes_to_a_file_that_is_moved_below_home_are_detected(bring_in: str, home: Path) -> None:
    outside = home.parent / "outside" / "file"
    outside.parent.mkdir()

    def workload(home: Path) -> None:
        began = time.time_ns()
        outside.touch()
        outside.unlink()  # the next file may reuse its inode
        held("open")(outside, "w").close()
        while os.stat(outside).st_mtime_ns <= began:  # the clock of the file system has ticks
            os.utime(outside)
        if bring_in == "rename of its folder":
            os.rename(outside.parent, home / "a")
        else:
            getattr(os, bring_in)(outside, home / "a")

    assert reasons(workload, home)[0] == (
        f"{outside} was moved or linked below home after a write that could not be recorded."
    )


def forkpty(_: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid, fd = pty.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(fd)


def spawn(_: Path) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def spawn_by_multiprocessing(_: Path) -> None:
    os.waitpid(multiprocessing.util.spawnv_passfds(b"/bin/true", [b"true"], []), 0)


def run_asynchronously(_: Path) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("start", "call"),
    [
        pytest.param(lambda _: forked(list), "os.fork", id="fork"),
        pytest.param(forkpty, "os.forkpty", id="forkpty"),
        pytest.param(spawn, "os.posix_spawn", id="posix_spawn"),
        pytest.param(lambda _: os.system("true"), "os.system", id="system"),
        pytest.param(lambda _: subprocess.run(["/bin/true"], check=True), "subprocess or multiprocessing", id="run"),
        pytest.param(lambda _: os.popen("true").close(), "subprocess or multiprocessing", id="popen"),
        pytest.param(spawn_by_multiprocessing, "subprocess or multiprocessing", id="multiprocessing"),
        pytest.param(run_asynchronously, "subprocess or multiprocessing", id="asyncio"),
    ],
)
def test_a_child_process_is_a_reason_unless_it_only_reads(start: Callable[[Path], Any], call: str, home: Path) -> None:
    assert any(reason.startswith(f"A child process was started (by {call})") for reason in reasons(start, home))
    assert reasons(start, home, children="readonly") == []


def test_a_child_does_not_wait_for_a_lock_of_its_parent(home: Path) -> None:
    def workload(home: Path) -> int:
        locked, done = threading.Event(), threading.Event()

        def hold() -> None:
            with recorder.log.lock:
                locked.set()
                done.wait()

        def child() -> None:
            signal.alarm(5)
            (home.parent / "a").mkdir()
            (home.parent / "a").rmdir()

        holder = threading.Thread(target=hold)
        holder.start()
        locked.wait()
        try:
            return forked(child)
        finally:
            done.set()
            holder.join()

    with Recorder(home, children="readonly") as recorder:
        assert workload(home) == 0
    assert recorder.unmeasured == []


def test_a_readonly_child_that_writes_is_detected(home: Path) -> None:
    (reason,) = reasons(lambda home: subprocess.run(["touch", home / "a"], check=True), home, children="readonly")
    assert "do not explain the content of a. " in reason


def map_old(home: Path, mode: str, **options: Any) -> None:
    with open(home / "old", mode) as file, mmap.mmap(file.fileno(), 0, **options):
        pass


@pytest.mark.parametrize("options", [{}, {"access": mmap.ACCESS_WRITE}])
def test_a_writable_shared_mapping_is_a_reason(options: dict[str, Any], home: Path) -> None:
    assert reasons(lambda home: map_old(home, "r+b", **options), home) == [
        "old was mapped by mmap: writes through the mapping cannot be seen."
    ]


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("rb", {"prot": mmap.PROT_READ}),
        ("rb", {"flags": mmap.MAP_PRIVATE}),
        ("r+b", {"access": mmap.ACCESS_READ}),
        ("r+b", {"access": mmap.ACCESS_COPY}),
    ],
)
def test_a_mapping_that_changes_no_file_is_not_a_reason(mode: str, options: dict[str, Any], home: Path) -> None:
    def workload(home: Path) -> None:
        map_old(home, mode, **options)
        mmap.mmap(-1, 10)

    assert reasons(workload, home) == []


@pytest.mark.parametrize("name", ["{home}/db", "file:{home}/db?mode=rwc"])
def test_sqlite_below_home_is_a_reason_unless_its_vfs_is_wrapped(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(home: Path) -> None:
        sqlite3.connect(name.format(home=home), uri=True).close()

    (home / "db").touch()
    assert reasons(connect, home) == []
    monkeypatch.setattr(sqlite_vfs, "_wrapper", lambda: None)
    assert reasons(connect, home) == [
        f"SQLite writes {home}/db from native code, and the VFS of this interpreter's SQLite cannot be wrapped."
    ]


def test_sqlite_in_memory_or_outside_home_is_not_a_reason(home: Path) -> None:
    def connect(home: Path) -> None:
        for name in (":memory:", "", home.parent / "db"):
            sqlite3.connect(name).close()

    assert reasons(connect, home) == []


def test_a_file_that_sqlite_rebuilds_is_not_compared(home: Path) -> None:
    (home / "old-shm").touch()
    with open(home / "old-shm", "w") as mapped, Recorder(home) as recorder:
        mapped.write("1")
        mapped.flush()
    assert recorder.unmeasured == []


def test_a_file_without_a_name_is_a_reason(home: Path) -> None:
    assert reasons(lambda home: os.close(os.open(home / "folder", os.O_TMPFILE | os.O_RDWR)), home) == [
        "O_TMPFILE opened a file without a name in folder, which cannot be followed."
    ]
    assert reasons(lambda _: tempfile.TemporaryFile().close(), home) == []


def test_a_thread_that_is_still_running_is_a_reason(home: Path) -> None:
    end = threading.Event()
    threads: list[threading.Thread] = []

    def workload(_: Path) -> None:
        threads.append(threading.Thread(target=end.wait, name="straggler"))
        threads[0].start()

    unfinished = reasons(workload, home)
    end.set()
    threads[0].join()
    assert unfinished == ["The thread 'straggler' is still running: what it writes from now on cannot be seen."]


def test_an_older_thread_is_not_a_reason(home: Path) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert reasons(lambda _: None, home) == []
    end.set()
    thread.join()


def test_a_pool_may_stay_if_it_is_idle(home: Path) -> None:
    end = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert reasons(lambda home: pool.submit((home / "a").touch).result(), home) == []
        unfinished = reasons(lambda _: pool.submit(end.wait), home)
        end.set()
    assert unfinished == [
        "Work that was handed to a thread is not finished: what it writes from now on cannot be seen."
    ]


def test_a_reason_is_not_repeated(home: Path) -> None:
    def workload(home: Path) -> None:
        for _ in range(3):
            held("truncate")(home / "old", 5)

    assert len(reasons(workload, home)) == 1


def test_the_hook_is_inert_without_a_recorder(home: Path) -> None:
    with Recorder(home) as recorder:
        (home / "a").touch()
    held("rename")(home / "a", home / "b")
    assert recorder.unmeasured == []
    assert in_words(recorder.trace()) == ["create a"]


def test_a_splice_from_a_descriptor_above_1023_is_recorded(home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    out, into = os.pipe()
    high = fcntl.fcntl(out, fcntl.F_DUPFD, 1024)

    def workload(home: Path) -> None:
        target = os.open(home / "a", os.O_WRONLY | os.O_CREAT)
        os.write(into, b"pipe")
        assert os.splice(high, target, 4) == 4
        os.close(target)

    try:
        assert record(workload, home) == ["create a", "write a 0 b'pipe'"]
    finally:
        for fd in (out, into, high):
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pipe_does_not_block_under_the_lock(home: Path) -> None:
    """The thread at the other end may have to write a file first."""

    def workload(home: Path) -> None:
        out, into = os.pipe()
        target = os.open(home / "a", os.O_WRONLY | os.O_CREAT)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            spliced = pool.submit(os.splice, out, target, 4)
            opened = pool.submit(lambda: open(home.parent / "pipe", "wb", buffering=0).close())
            (home / "b").touch()
            os.write(into, b"pipe")
            assert spliced.result(10) == 4
            open(home.parent / "pipe", "rb").close()
            opened.result(10)
        for fd in (out, into, target):
            os.close(fd)

    os.mkfifo(home.parent / "pipe")
    assert reasons(workload, home) == []
