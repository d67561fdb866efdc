"""Calls that a client holds are steps of the schedule, and what bypasses the stand-ins is noted."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import io
import itertools
import mmap
import multiprocessing
import multiprocessing.util
import os
import socket
import subprocess
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import ScheduleRun
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.race.file_racing import explored

Client = Callable[[Path], Any]


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("0")
        yield home


def run_once(home: Home, client: Client) -> ScheduleRun:
    processes = ClientProcesses(home, [client], 20)
    try:
        return processes.run(())
    finally:
        processes.close()


def kinds(run: ScheduleRun) -> list[str]:
    assert run.unseen == []
    return [step.access.kind for step in run.steps]


def reading(home: Path, calls: Any) -> bytes:
    fd = os.open(home / "n", os.O_RDONLY)
    try:
        return calls.read(fd, 9)  # type: ignore[no-any-return]
    finally:
        os.close(fd)


class Reader:
    def __init__(self) -> None:
        self.read = os.read


def in_a_dict() -> Any:
    table = {"read": os.read}
    return types.SimpleNamespace(read=lambda fd, size: table["read"](fd, size))


def in_a_partial() -> Any:
    return types.SimpleNamespace(read=functools.partial(os.read))


class TestHeldCalls:
    @pytest.mark.parametrize("make", [Reader, in_a_dict, in_a_partial])
    def test_one_is_a_step(self, home: Home, make: Callable[[], Any]) -> None:
        calls = make()
        assert kinds(run_once(home, lambda home: reading(home, calls)))[:2] == ["open", "read"]

    def test_one_of_the_clients_closure_is_a_step(self, home: Home) -> None:
        stat = os.stat
        assert kinds(run_once(home, lambda home: stat(home / "n").st_size)) == ["stat"]

    def test_one_of_the_clients_defaults_is_a_step(self, home: Home) -> None:
        def client(home: Path, stat: Any = os.stat) -> Any:
            return stat(home / "n").st_size

        assert kinds(run_once(home, client)) == ["stat"]

    def test_one_kept_from_a_recording_is_a_step(self, home: Home) -> None:
        class Writer:
            def __init__(self) -> None:
                self.write = os.write

        with Recorder(home.path):
            writer = Writer()

        def client(home: Path) -> None:
            fd = os.open(home / "n", os.O_WRONLY)
            writer.write(fd, b"1")
            os.close(fd)

        assert kinds(run_once(home, client))[:2] == ["open", "write"]

    def test_one_that_cannot_be_replaced_is_noted(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(globals(), "kept", itertools.repeat(os.read))
        (reason,) = run_once(home, lambda home: (home / "n").read_text()).unseen
        assert reason.startswith(f"os.read is held by an object of type itertools.repeat, in {__name__}, ")


_AUDITED = ["rename", "unlink", "mkdir", "rmdir", "link", "symlink", "truncate", "listdir", "scandir", "chmod", "utime"]
_HELD = {name: itertools.repeat(getattr(os, name)) for name in _AUDITED} | {
    "open": itertools.repeat(open),
    "os.open": itertools.repeat(os.open),
    "io": itertools.repeat(io.FileIO),
    "flock": itertools.repeat(fcntl.flock),
    "lockf": itertools.repeat(fcntl.lockf),
    "fcntl": itertools.repeat(fcntl.fcntl),
    "kill": itertools.repeat(os.kill),
}


def held(name: str) -> Any:
    """Return a real call, from an iterator that nothing can change."""
    return next(_HELD[name])


def locking(name: str, home: Path, *args: Any) -> None:
    with open(home.parent / "lock", "w") as lock:
        held(name)(lock, *args)


PATHS: dict[str, tuple[Client, str]] = {
    "open": (lambda home: held("open")(home / "n").close(), "n, which was opened"),
    "os.open": (lambda home: os.close(held("os.open")(home / "n", os.O_RDONLY)), "n, which was opened"),
    "FileIO": (lambda home: held("io")(home / "n").close(), "n, which was opened"),
    "rename": (lambda home: held("rename")(home / "n", home / "m"), "n, which was renamed"),
    "unlink": (lambda home: held("unlink")(home / "n"), "n, which was removed"),
    "mkdir": (lambda home: held("mkdir")(home / "d"), "d, which was created"),
    "link": (lambda home: held("link")(home / "n", home / "m"), "m, which was linked"),
    "symlink": (lambda home: held("symlink")("n", home / "m"), "m, which was created"),
    "truncate": (lambda home: held("truncate")(home / "n", 0), "n, which was truncated"),
    "listdir": (lambda home: held("listdir")(home), "home, which was listed"),
    "scandir": (lambda home: held("scandir")(home).close(), "home, which was listed"),
    "chmod": (lambda home: held("chmod")(home / "n", 0o600), "n, which was changed"),
    "utime": (lambda home: held("utime")(home / "n"), "n, which was changed"),
}
LOCKS: dict[str, Client] = {
    "flock": lambda home: locking("flock", home, fcntl.LOCK_EX),
    "lockf": lambda home: locking("lockf", home, fcntl.LOCK_EX),
    "fcntl": lambda home: locking("fcntl", home, fcntl.F_SETLK, b"\0" * 32),
}
CHILDREN: dict[str, Client] = {
    "system": lambda _: os.system("true"),
    "spawn": lambda _: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "run": lambda _: subprocess.run(["/bin/true"], check=True),
    "multiprocessing": lambda _: os.waitpid(multiprocessing.util.spawnv_passfds(b"/bin/true", [b"true"], []), 0),
}


class TestSharedLocks:
    """Locks of `multiprocessing` that are older than the clients."""

    @pytest.mark.parametrize(
        "take",
        [
            pytest.param(lambda lock: lock.acquire(), id="acquire"),
            pytest.param(lambda lock: lock.__enter__(), id="with"),
            pytest.param(lambda lock: lock.acquire(False), id="try"),
            pytest.param(lambda lock: lock.acquire(timeout=0.01), id="limit"),
        ],
    )
    def test_one_that_another_client_holds_is_noted(self, home: Home, take: Callable[[Any], Any]) -> None:
        lock = multiprocessing.Lock()

        def client(home: Path) -> None:
            if take(lock):
                (home / "n").write_text("1")
                lock.release()

        assert ["a lock of multiprocessing that another client holds"] in [
            run.unseen for run, _ in explored(home, client, client, preemptions=1)
        ]

    def test_one_that_is_free_is_not_noted(self, home: Home) -> None:
        lock = multiprocessing.RLock()

        def client(home: Path) -> None:
            (home / "n").write_text("1")
            with lock, lock:
                pass

        runs = explored(home, client, client, preemptions=1)
        assert [run.unseen for run, _ in runs] == [[]] * len(runs)


class TestBypasses:
    @pytest.mark.parametrize(("client", "what"), PATHS.values(), ids=PATHS)
    def test_a_call_that_cannot_be_replaced_is_noted(self, home: Home, client: Client, what: str) -> None:
        assert run_once(home, client).unseen[0] == f"{what} by native code or by a call that it could not replace"

    @pytest.mark.parametrize("client", LOCKS.values(), ids=LOCKS)
    def test_a_lock_that_cannot_be_replaced_is_noted_wherever_its_file_is(self, home: Home, client: Client) -> None:
        assert run_once(home, client).unseen == ["a lock by a call that it could not replace"]

    @pytest.mark.parametrize("client", CHILDREN.values(), ids=CHILDREN)
    def test_a_child_process_is_noted(self, home: Home, client: Client) -> None:
        assert run_once(home, client).unseen == ["a child process"]

    def test_a_process_that_is_replaced_by_another_is_noted_before_it_is_gone(self, home: Home) -> None:
        def client(_: Path) -> None:
            try:
                os.execv("/no/such/program", ["it"])
            except FileNotFoundError:
                return

        assert run_once(home, client).unseen == ["a child process"]

    def test_files_elsewhere_and_queries_are_not_noted(self, home: Home, tmp_path: Path) -> None:
        def client(home: Path) -> None:
            held("open")(tmp_path / "elsewhere", "w").close()
            held("listdir")(tmp_path)
            with open(home / "n") as file:
                held("fcntl")(file, fcntl.F_GETFL)
            mmap.mmap(-1, 10).close()

        assert run_once(home, client).unseen == []

    @pytest.mark.parametrize(
        ("place", "mode", "access", "noted"),
        [
            pytest.param("n", "r+b", mmap.ACCESS_DEFAULT, ["a memory map"], id="home"),
            pytest.param("n", "rb", mmap.ACCESS_READ, ["a memory map"], id="to read"),
            pytest.param("../m", "rb", mmap.ACCESS_READ, ["a memory map"], id="beside home"),
            pytest.param("{tmp_path}/m", "r+b", mmap.ACCESS_DEFAULT, ["a memory map"], id="elsewhere"),
            pytest.param("{tmp_path}/m", "r+b", mmap.ACCESS_COPY, [], id="private elsewhere"),
            pytest.param("{tmp_path}/m", "rb", mmap.ACCESS_READ, [], id="to read elsewhere"),
        ],
    )
    def test_a_map_that_clients_may_share_is_noted(
        self, home: Home, tmp_path: Path, place: str, mode: str, access: int, noted: list[str]
    ) -> None:
        for folder in (home.path.parent, tmp_path):
            (folder / "m").write_text("0")

        def client(home: Path) -> None:
            with open(home / place.format(tmp_path=tmp_path), mode) as file, mmap.mmap(file.fileno(), 0, access=access):
                pass

        assert run_once(home, client).unseen == noted

    def test_memory_that_clients_share_by_its_name_is_noted(self, home: Home) -> None:
        memory = shared_memory.SharedMemory(create=True, size=1)
        try:
            reasons = run_once(home, lambda _: shared_memory.SharedMemory(memory.name).close()).unseen
        finally:
            memory.close()
            memory.unlink()
        assert reasons == ["a memory map"]

    def test_everyday_calls_are_not_noted(self, home: Home) -> None:
        def client(home: Path) -> None:
            (home / "d").mkdir()
            (home / "d" / "a").write_text("text")
            os.replace(home / "d" / "a", home / "b")
            list(home.iterdir())
            list(os.walk(home))
            with open(home / "b", opener=lambda path, flags: os.open(path, flags)) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.read()
            os.chmod(home / "b", 0o600)
            (home / "b").unlink()
            (home / "d").rmdir()

        assert run_once(home, client).unseen == []


def looking(look: Callable[[int], Any]) -> list[Client]:
    """Return a client that holds a lock with its process id in it, and one that looks whether that process is alive."""

    def holding(home: Path) -> None:
        (home / "lock").write_text(str(os.getpid()))

    def checking(home: Path) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            look(int((home / "lock").read_text()))

    return [holding, checking]


def pidfd(pid: int) -> None:
    os.close(os.pidfd_open(pid))


LOOKS = [
    pytest.param(lambda pid: os.kill(pid, 0), id="kill"),
    pytest.param(lambda pid: next(_HELD["kill"])(pid, 0), id="kill held"),
    pytest.param(pidfd, id="pidfd"),
    pytest.param(lambda pid: os.getpgid(pid), id="getpgid"),
    pytest.param(lambda pid: os.getsid(pid), id="getsid"),
    pytest.param(lambda pid: os.path.exists(f"/proc/{pid}"), id="proc"),
    pytest.param(lambda pid: Path(f"/proc/{pid}/stat").read_text(), id="proc stat"),
    pytest.param(lambda pid: os.listdir(f"/proc/{pid}/fd"), id="proc fd"),
]


@pytest.mark.parametrize("name", ["open", "read", "stat", "flock"])
def test_a_file_call_by_ctypes_is_noted(home: Home, name: str) -> None:
    def client(home: Path) -> None:
        (home / "n").exists()
        getattr(ctypes.CDLL(None), name)

    assert run_once(home, client).unseen == [f"{name} of the C library, called with ctypes"]


def test_other_calls_by_ctypes_are_not_noted(home: Home) -> None:
    assert run_once(home, lambda _: ctypes.CDLL(None).getpid()).unseen == []


class TestProcesses:
    @pytest.mark.parametrize("look", LOOKS)
    def test_looking_whether_another_client_is_alive_is_noted(self, home: Home, look: Callable[[int], Any]) -> None:
        processes = ClientProcesses(home, looking(look), 20)
        with contextlib.closing(processes):
            assert processes.run(()).unseen == ["whether the process of another client is alive"]

    def test_it_is_noted_if_the_clients_are_stuck(self, home: Home) -> None:
        """A client's process outlives the client, so one that waits for its end is not a livelock."""

        def holding(home: Path) -> None:
            (home / "lock").write_text(str(os.getpid()))

        def waiting(home: Path) -> None:
            while True:
                os.kill(int((home / "lock").read_text()), 0)
                time.sleep(1)

        processes = ClientProcesses(home, [holding, waiting], 20)
        with contextlib.closing(processes):
            run = processes.run(())
        assert run.stuck
        assert run.unseen == ["whether the process of another client is alive"]

    @pytest.mark.parametrize("look", LOOKS)
    def test_other_processes_are_not_noted(self, home: Home, look: Callable[[int], Any]) -> None:
        def client(_: Path) -> None:
            for pid in (os.getpid(), os.getppid(), 2**22 - 1):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    look(pid)

        assert run_once(home, client).unseen == []

    def test_the_name_of_its_program_is_not_noted(self, home: Home) -> None:
        """File stores add it to the message about a lock that they waited for in vain."""
        processes = ClientProcesses(home, looking(lambda pid: Path(f"/proc/{pid}/comm").read_text()), 20)
        with contextlib.closing(processes):
            assert processes.run(()).unseen == []


class TestSockets:
    def test_one_that_is_bound_is_noted(self, home: Home) -> None:
        def client(_: Path) -> None:
            with socket.socket(socket.AF_UNIX) as lock:
                lock.bind("\0wfstate-test-lock")

        assert run_once(home, client).unseen == ["a socket that is bound to an address, which only one client can be"]

    def test_one_at_any_free_port_is_not_noted(self, home: Home) -> None:
        def client(_: Path) -> None:
            for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_UNIX, "")):
                with socket.socket(family) as server:
                    server.bind((address, 0) if family is socket.AF_INET else address)

        assert run_once(home, client).unseen == []
