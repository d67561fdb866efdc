"""Whatever the recorder cannot see ends in a reason, never in a silent gap."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import mmap
import multiprocessing.util
import os
import pty
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

from pytest_wfstate.faults.record import sqlite_vfs
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.record.recording import forked
from tests.unit.faults.trace.texts import in_words

HELD: dict[str, Any] = {name: getattr(os, name) for name in dir(os)} | {
    "open": open,
    "os.open": os.open,
    "io": io.FileIO,
}
"""Real calls, where no recorder looks for them."""


def reasons(workload: Callable[[Path], Any], home: Path, **options: Any) -> list[str]:
    with Recorder(home, **options) as recorder:
        workload(home)
    return recorder.unmeasured


@pytest.mark.parametrize(
    ("call", "said"),
    [
        pytest.param(
            lambda home: HELD["open"](home / "a", "w").close(), "a was opened for writing by a call", id="open-w"
        ),
        pytest.param(
            lambda home: HELD["open"](home / "old", "r+").close(), "old was opened for writing by a call", id="open-r+"
        ),
        pytest.param(
            lambda home: HELD["io"](home / "a", "w").close(), "a was opened for writing by a call", id="FileIO"
        ),
        pytest.param(
            lambda home: os.close(HELD["os.open"](home / "a", os.O_CREAT)),
            "a was opened for writing by a call",
            id="os.open",
        ),
        pytest.param(lambda home: HELD["rename"](home / "old", home / "a"), "old was renamed by a call", id="rename"),
        pytest.param(
            lambda home: HELD["rename"](home.parent / "outside", home / "a"), "a was renamed by a call", id="rename-in"
        ),
        pytest.param(lambda home: HELD["remove"](home / "old"), "old was removed by a call", id="remove"),
        pytest.param(lambda home: HELD["mkdir"](home / "a"), "a was made by a call", id="mkdir"),
        pytest.param(lambda home: HELD["rmdir"](home / "folder"), "folder was removed by a call", id="rmdir"),
        pytest.param(lambda home: HELD["link"](home / "old", home / "a"), "a was linked by a call", id="link"),
        pytest.param(lambda home: HELD["symlink"]("x", home / "a"), "a was made by a call", id="symlink"),
        pytest.param(lambda home: HELD["truncate"](home / "old", 9), "old was truncated by a call", id="truncate"),
    ],
)
def test_a_call_that_nobody_announced_is_noticed(call: Callable[[Path], Any], said: str, home: Path) -> None:
    (home.parent / "outside").touch()
    assert reasons(call, home)[0].startswith(said)


def test_an_unseen_call_is_noticed_by_folder_descriptor_and_by_descriptor(home: Path) -> None:
    def workload(home: Path) -> None:
        fd = os.open(home, os.O_RDONLY)
        HELD["mkdir"]("a", dir_fd=fd)
        HELD["rmdir"]("a", dir_fd=fd)
        os.close(fd)
        HELD["io"](os.open(home / "old", os.O_RDWR), "r+").close()

    said = reasons(workload, home)
    assert [reason.split(" by ")[0] for reason in said] == ["a was made", "a was removed", "old was opened for writing"]


def test_what_only_reads_or_is_elsewhere_is_no_reason(home: Path) -> None:
    def workload(home: Path) -> None:
        HELD["open"](home / "old").close()
        os.close(HELD["os.open"](home, os.O_RDONLY))
        HELD["open"](home.parent / "a", "w").close()
        HELD["rename"](home.parent / "a", home.parent / "b")
        (home / "b").write_bytes(b"1")

    assert reasons(workload, home) == []


def test_a_file_object_from_before_is_noticed(home: Path) -> None:
    with open(home / "old", "a") as file:

        def workload(home: Path) -> None:
            (home / "a").touch()
            file.write("more")
            file.flush()

        (said,) = reasons(workload, home)
    assert said.startswith("The recorded ops do not explain the content of old. ")
    assert "a file object that was opened before recording began" in said


def test_at_most_three_paths_are_named(home: Path) -> None:
    files = [open(home / name, "w") for name in "abcde"]

    def workload(_: Path) -> None:
        for file in files:
            file.write("1")
            file.close()

    (said,) = reasons(workload, home)
    assert said.startswith("The recorded ops do not explain the content of a, b, c and 2 more. ")


@pytest.mark.parametrize(
    "take_away",
    [lambda home: os.unlink(home / "old"), lambda home: os.rename(home / "new", home / "old")],
    ids=["unlink", "rename"],
)
def test_unseen_writes_to_a_file_that_is_gone_are_noticed(take_away: Callable[[Path], Any], home: Path) -> None:
    (home / "new").touch()
    with open(home / "old", "ab", buffering=0) as file:

        def workload(home: Path) -> None:
            with open(home / "old", "ab") as seen:
                seen.write(b"6")
            file.write(b"78")
            take_away(home)

        (said,) = reasons(workload, home)
    assert said == (
        "The recorded ops do not explain the content of old when it was removed or replaced: it had 8 bytes, of "
        "which 6 were recorded."
    )


@pytest.mark.parametrize("bring_in", ["rename", "link", "rename of its folder"])
def test_unseen_writes_to_a_file_that_is_moved_in_are_noticed(bring_in: str, home: Path) -> None:
    outside = home.parent / "outside" / "file"
    outside.parent.mkdir()

    def workload(home: Path) -> None:
        began = time.time_ns()
        outside.touch()
        outside.unlink()  # the next file may get its inode, and is another
        HELD["open"](outside, "w").close()
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
            (home / "a").mkdir()
            (home / "a").rmdir()

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


def test_a_child_that_writes_after_all_is_noticed(home: Path) -> None:
    (said,) = reasons(lambda home: subprocess.run(["touch", home / "a"], check=True), home, children="readonly")
    assert "do not explain the content of a. " in said


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
def test_a_mapping_that_changes_no_file_is_none(mode: str, options: dict[str, Any], home: Path) -> None:
    assert reasons(lambda home: map_old(home, mode, **options), home) == []


def test_memory_of_no_file_is_no_reason(home: Path) -> None:
    assert reasons(lambda _: mmap.mmap(-1, 10), home) == []


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


def test_sqlite_in_memory_or_elsewhere_is_no_reason(home: Path) -> None:
    def connect(home: Path) -> None:
        for name in (":memory:", "", home.parent / "db"):
            sqlite3.connect(name).close()

    assert reasons(connect, home) == []


def test_what_sqlite_rebuilds_is_no_difference(home: Path) -> None:
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


def test_a_thread_that_still_runs_is_a_reason(home: Path) -> None:
    end = threading.Event()
    threads: list[threading.Thread] = []

    def workload(_: Path) -> None:
        threads.append(threading.Thread(target=end.wait, name="straggler"))
        threads[0].start()

    said = reasons(workload, home)
    end.set()
    threads[0].join()
    assert said == ["The thread 'straggler' is still running: what it writes from now on cannot be seen."]


def test_a_thread_from_before_is_no_reason(home: Path) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert reasons(lambda _: None, home) == []
    end.set()
    thread.join()


def test_a_pool_must_be_idle_not_gone(home: Path) -> None:
    end = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert reasons(lambda home: pool.submit((home / "a").touch).result(), home) == []
        said = reasons(lambda _: pool.submit(end.wait), home)
        end.set()
    assert said == ["Work that was handed to a thread is not finished: what it writes from now on cannot be seen."]


def test_a_reason_is_given_once(home: Path) -> None:
    def workload(home: Path) -> None:
        for _ in range(3):
            HELD["truncate"](home / "old", 5)

    assert len(reasons(workload, home)) == 1


def test_the_hook_is_inert_without_a_recorder(home: Path) -> None:
    with Recorder(home) as recorder:
        (home / "a").touch()
    HELD["rename"](home / "a", home / "b")
    assert recorder.unmeasured == []
    assert in_words(recorder.trace()) == ["create a"]


def test_a_pipe_does_not_wait_under_the_lock(home: Path) -> None:
    """Whoever opens or feeds the other end may have to write a file first."""

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
