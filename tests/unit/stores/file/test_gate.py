"""The gate of a folder: a writer that waits is next, however many readers overlap."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, LockTimeout, UnsafeFile, samples
from pytest_wfstate.stores.file.lock import Kind, locked
from tests.unit.stores.file.kinds import GATE
from tests.unit.stores.file.lockers import FORK, Program, can_lock, is_free

KINDS = [Kind.EXCLUSIVE, Kind.SHARED]

WAIT = """
import time
real, said = time.sleep, []
def sleep(seconds):
    if not said:
        said.append(print("waits", flush=True))
    real(seconds)
time.sleep = sleep
with locked(home, Kind.EXCLUSIVE, 3600):
    print("held", flush=True)
    sys.stdin.read()
"""

DIE_WAITING_WITH_A_CHILD = """
import time
def sleep(_):
    fork_child()
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep = sleep
with locked(home, Kind.EXCLUSIVE):
    pass
"""


@contextlib.contextmanager
def waiting_writer(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a thread wait for the exclusive lock, which the caller keeps it from, until the block ends."""
    waits, real = threading.Event(), time.sleep

    def sleep(seconds: float) -> None:
        waits.set()
        real(seconds)

    def write() -> None:
        with locked(home, Kind.EXCLUSIVE):
            pass

    with ThreadPoolExecutor(1) as other:
        with locked(home, Kind.SHARED):
            monkeypatch.setattr(time, "sleep", sleep)
            writer = other.submit(write)
            assert waits.wait(10)
            monkeypatch.setattr(time, "sleep", real)
            yield
        writer.result()


def test_a_reader_lets_a_writer_that_waits_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise readers that overlap would keep writers out for as long as they like."""
    with waiting_writer(tmp_path, monkeypatch):
        assert not can_lock(tmp_path, Kind.SHARED)

    assert can_lock(tmp_path, Kind.SHARED)
    assert is_free(tmp_path)


def test_a_reader_lets_a_writer_of_another_process_go_first(tmp_path: Path, programs: list[Program]) -> None:
    with locked(tmp_path, Kind.SHARED):
        programs.append(Program(WAIT, tmp_path))
        assert programs[0].says() == "waits"

        assert not can_lock(tmp_path, Kind.SHARED)

    assert programs[0].says() == "held"
    programs[0].end()
    assert can_lock(tmp_path, Kind.SHARED)


def test_a_writer_that_dies_while_it_waits_keeps_no_reader_out(tmp_path: Path, programs: list[Program]) -> None:
    with locked(tmp_path, Kind.SHARED):
        programs.append(Program(WAIT, tmp_path))
        assert programs[0].says() == "waits"

        programs[0].end()

        assert can_lock(tmp_path, Kind.SHARED)


def test_a_forked_child_does_not_hold_the_gate_of_a_parent_that_died(tmp_path: Path, programs: list[Program]) -> None:
    with locked(tmp_path, Kind.SHARED):
        programs.append(Program(FORK + DIE_WAITING_WITH_A_CHILD, tmp_path))
        programs[0].process.wait()

        assert can_lock(tmp_path, Kind.SHARED)


def test_a_reader_that_waits_for_a_writer_in_vain_names_all_who_keep_it_out(
    tmp_path: Path, programs: list[Program]
) -> None:
    with locked(tmp_path, Kind.SHARED):
        programs.append(Program(WAIT, tmp_path))
        assert programs[0].says() == "waits"

        with pytest.raises(LockTimeout) as error, locked(tmp_path, Kind.SHARED, wait=0):
            pass

    assert f"process {programs[0].process.pid} " in str(error.value)
    assert "another call in this process" in str(error.value)


def test_a_lock_that_nobody_waits_for_needs_no_gate(tmp_path: Path) -> None:
    for kind in KINDS:
        with locked(tmp_path, kind):
            pass

    assert os.listdir(tmp_path) == []


def test_a_reader_creates_no_gate(tmp_path: Path) -> None:
    with locked(tmp_path, Kind.EXCLUSIVE):
        assert not can_lock(tmp_path, Kind.SHARED)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_that_cannot_be_opened_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, number: int
) -> None:
    tried, real = [], os.open

    def open_(path: Any, *args: Any) -> int:
        if Path(path).name == GATE:
            tried.append(path)
            raise OSError(number, os.strerror(number))
        return real(path, *args)

    monkeypatch.setattr(os, "open", open_)

    with locked(tmp_path, Kind.EXCLUSIVE):
        assert not can_lock(tmp_path, kind)
    assert can_lock(tmp_path, kind)
    assert tried


@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_that_is_no_file_is_refused(tmp_path: Path, kind: Kind) -> None:
    (tmp_path / GATE).symlink_to(tmp_path / "elsewhere")

    with locked(tmp_path, Kind.EXCLUSIVE), pytest.raises(UnsafeFile), locked(tmp_path, kind, wait=0):
        pass

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("mode", "permissions"), [(0o600, 0o600), (0o660, 0o660)])
def test_a_gate_has_the_permissions_of_the_other_files(tmp_path: Path, mode: int, permissions: int) -> None:
    store = FilePausedStore(tmp_path, lock_timeout=0, mode=mode)
    before = os.umask(0)
    try:
        with locked(tmp_path, Kind.SHARED), pytest.raises(LockTimeout):
            store.save(samples.paused())
    finally:
        os.umask(before)

    assert (tmp_path / GATE).stat().st_mode & 0o777 == permissions
