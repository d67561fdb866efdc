"""A gate decides on each op before it happens: it may let it pass, fail it, cut it short, or kill."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.folders import read_content
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.record.recorder import Recorder
from tests.unit.faults.record.recording import forked
from tests.unit.faults.trace.texts import in_words


class LoggingGate:
    """A gate that lets everything pass, and logs what it is asked."""

    injects_errors = False

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before(self, intent: Intent) -> int | None:
        size = f" {intent.size}" if intent.size else ""
        self.calls.append(f"{intent.kind} {intent.path} {intent.new_path}".strip() + size)
        return None

    def after(self, *ops: Any) -> None:
        self.calls.append(" ".join(type(op).__name__ for op in ops))


def test_the_gate_is_called_before_and_after_each_op_below_home(home: Path) -> None:
    gate = LoggingGate()
    with Recorder(home, gate=gate) as recorder:
        with open(home / "a", "wb", opener=lambda path, flags: os.open(path, flags | os.O_SYNC)) as file:
            file.write(b"123")
        (home.parent / "outside").write_bytes(b"1")
        os.rename(home / "a", home / "folder" / "b")
        os.rename(home.parent / "outside", home / "in")
        os.rename(home / "in", home.parent / "out")
        open(home / "old", "w").close()
        with pytest.raises(FileExistsError):
            os.mkdir(home / "folder")
        with pytest.raises(OSError, match="not empty"):
            os.rmdir(home / "folder")
        (home / "folder" / "b").unlink()
        (home / "folder").rmdir()
        os.symlink("x", home / "s")
        os.link(home / "old", home / "l")
        fd = os.open(home, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        with open(home / "l", "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 2)
            os.fdatasync(file.fileno())
        os.sync()
    assert gate.calls == [
        *("create a", "Create", "write a 3", "Write Fsync"),
        *("rename a folder/b", "Rename", "rename  in", "Rename", "rename in", "Rename"),
        *("truncate old", "Truncate", "unlink folder/b", "Unlink", "rmdir folder", "Unlink"),
        *("symlink s", "Create", "link l", "Link", "fsync .", "Fsync"),
        *("allocate l", "Allocate", "fdatasync l", "Fsync", "sync .", "Sync"),
    ]
    assert recorder.unmeasured == []


class ErrorGate(LoggingGate):
    """A gate that is asked about calls that change nothing, too."""

    injects_errors = True


@pytest.mark.parametrize(
    ("gate", "reads", "closes"), [(LoggingGate(), [], []), (ErrorGate(), ["read old", "list ."], ["close folder/new"])]
)
def test_only_a_gate_that_injects_errors_is_asked_about_reads_listings_and_closes(
    home: Path, gate: LoggingGate, reads: list[str], closes: list[str]
) -> None:
    with Recorder(home, gate=gate) as recorder:
        (home / "old").read_bytes()
        os.listdir(home)
        with open(home / "folder" / "new", "wb", buffering=0) as file:
            file.write(b"1")
    assert gate.calls == [*reads, "create folder/new", "Create", "write folder/new 1", "Write", *closes]
    assert recorder.unmeasured == []


class FailingKind(LoggingGate):
    """A gate that fails one kind of op."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def before(self, intent: Intent) -> int | None:
        if intent.kind == self.kind:
            raise OSError(28, "No space left on device")
        return super().before(intent)


def everything(home: Path) -> Iterator[Callable[[], Any]]:
    fd = os.open(home / "old", os.O_RDWR)
    yield lambda: os.write(fd, b"1")
    yield lambda: os.ftruncate(fd, 1)
    yield lambda: os.posix_fallocate(fd, 0, 9)
    yield lambda: os.fsync(fd)
    yield lambda: os.fdatasync(fd)
    yield lambda: open(home / "a", "w").close()
    yield lambda: os.rename(home / "old", home / "b")
    yield lambda: os.mkdir(home / "c")
    yield lambda: os.rmdir(home / "folder")
    yield lambda: os.link(home / "old", home / "d")
    yield lambda: os.symlink("e", home / "f")
    yield lambda: os.unlink(home / "old")
    yield os.sync
    os.close(fd)


KINDS = ("write", "truncate", "allocate", "fsync", "fdatasync", "create", "rename", "mkdir", "rmdir", "link", "symlink")


@pytest.mark.parametrize(("number", "kind"), list(enumerate((*KINDS, "unlink", "sync"))))
def test_a_call_that_the_gate_fails_is_not_made(number: int, kind: str, home: Path) -> None:
    before = read_content(home)
    with Recorder(home, gate=FailingKind(kind)) as recorder:
        for index, call in enumerate(everything(home)):
            if index == number:
                with pytest.raises(OSError, match="No space left"):
                    call()
    assert read_content(home) == before
    assert in_words(recorder.trace()) == ([f"{kind} old failed"] if "sync" in kind and kind != "sync" else [])


class ShortWrites(LoggingGate):
    """A gate that cuts each write to two bytes."""

    def before(self, intent: Intent) -> int | None:
        super().before(intent)
        return 2 if intent.kind == "write" else None


def test_a_write_that_the_gate_cuts_is_short(home: Path) -> None:
    with Recorder(home, gate=ShortWrites()) as recorder:
        fd = os.open(home / "a", os.O_RDWR | os.O_CREAT)
        assert os.write(fd, b"12345") == 2
        assert os.pwrite(fd, b"12345", 7) == 2
        assert os.writev(fd, [b"1", b"2345"]) == 2
        source = os.open(home / "old", os.O_RDONLY)
        assert os.sendfile(fd, source, 0, 5) == 2
        with io.FileIO(home / "b", "w") as file:
            assert file.write(b"12345") == 2
    assert in_words(recorder.trace()) == [
        "create a",
        "write a 0 b'12'",
        "write a 7 b'12'",
        "write a 2 b'12'",
        "write a 4 b'12'",
        "create b",
        "write b 0 b'12'",
    ]
    assert recorder.unmeasured == []


def test_a_write_can_be_cut_to_zero_bytes(home: Path) -> None:
    class Full(LoggingGate):
        def before(self, intent: Intent) -> int | None:
            return 0 if intent.kind == "write" else None

    with Recorder(home, gate=Full()) as recorder, io.FileIO(home / "a", "w") as file:
        assert file.write(b"12345") == 0
        assert os.write(file.fileno(), b"12345") == 0
    assert in_words(recorder.trace()) == ["create a"]


def test_buffers_retry_after_a_short_write(home: Path) -> None:
    with Recorder(home, gate=ShortWrites()) as recorder:
        (home / "a").write_bytes(b"12345")
    assert in_words(recorder.trace())[1:] == ["write a 0 b'12'", "write a 2 b'34'", "write a 4 b'5'"]


def test_the_gate_is_asked_without_the_lock(home: Path) -> None:
    class Waiting(LoggingGate):
        def before(self, intent: Intent) -> int | None:
            if intent.path == "a":
                other = threading.Thread(target=(home / "b").touch)
                other.start()
                other.join(10)
                assert not other.is_alive()
            return super().before(intent)

    with Recorder(home, gate=Waiting()) as recorder:
        (home / "a").touch()
    assert in_words(recorder.trace()) == ["create b", "create a"]


def test_a_gate_can_kill(home: Path) -> None:
    class Deadly(LoggingGate):
        def before(self, intent: Intent) -> int | None:
            if intent.kind == "rename":
                os.kill(os.getpid(), signal.SIGKILL)
            return None

    def workload() -> None:
        with Recorder(home, gate=Deadly()), open(home / "tmp", "w") as file:
            file.write("flushed")
            file.flush()
            file.write("in a buffer")
            os.rename(home / "tmp", home / "old")

    assert os.waitstatus_to_exitcode(forked(workload)) == -signal.SIGKILL
    assert read_content(home) == {"old": b"12345", "folder": None, "tmp": b"flushed"}
