"""Calls that a client holds are steps of the schedule, and what bypasses the stand-ins is noted."""

from __future__ import annotations

import fcntl
import functools
import io
import itertools
import mmap
import multiprocessing.util
import os
import subprocess
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import ScheduleRun
from pytest_wfstate.faults.record.recorder import Recorder

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

    def test_files_elsewhere_and_queries_are_not_noted(self, home: Home) -> None:
        def client(home: Path) -> None:
            held("open")(home.parent / "elsewhere", "w").close()
            held("listdir")(home.parent)
            with open(home / "n") as file:
                held("fcntl")(file, fcntl.F_GETFL)
            mmap.mmap(-1, 10).close()

        assert run_once(home, client).unseen == []

    def test_a_mapped_file_is_noted(self, home: Home) -> None:
        def client(home: Path) -> None:
            with open(home / "n", "r+b") as file, mmap.mmap(file.fileno(), 0):
                pass

        assert run_once(home, client).unseen == ["a memory map"]

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
