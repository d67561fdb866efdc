from __future__ import annotations

import ctypes
import errno
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.record import sqlite_vfs
from pytest_wfstate.faults.record.gate import Intent
from pytest_wfstate.faults.record.sqlite_vfs import watch_sqlite
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import Ack, Create, Fsync, Op, Unlink, Write
from tests.unit.faults.record import sqlite_workload
from tests.unit.faults.record.sqlite_workload import (
    COMMITS,
    folder_in_memory,
    names,
    on_disk,
    replayed,
    rows,
    write_commits,
)

pytestmark = pytest.mark.skipif(sqlite_vfs._wrapper() is None, reason="this interpreter's SQLite cannot be reached")


@pytest.fixture
def home() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def log(home: Path) -> Log:
    return Log(home)


class FailingGate:
    """Lets every op pass but the n-th of a kind, and logs them all."""

    injects_errors = False

    def __init__(self, kind: str = "", nth: int = 0, answer: BaseException | int | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.happened = 0
        self._kind = kind
        self._nth = nth
        self._answer = answer

    def before(self, intent: Intent) -> int | None:
        self.asked.append((intent.kind, intent.path))
        assert (intent.size > 0) == (intent.kind == "write")
        if intent.kind == self._kind:
            self._nth -= 1
            if self._nth == -1:
                if isinstance(self._answer, BaseException):
                    raise self._answer
                return self._answer
        return None

    def after(self, *_ops: Op) -> None:
        self.happened += 1


def test_the_gate_is_called_before_and_after_each_op(home: Path, log: Log) -> None:
    gate = FailingGate()
    with watch_sqlite(log, gate):
        write_commits(log, home, "delete", "extra").close()
    known = names(log.items)
    recorded = [
        (type(item).__name__.lower(), known[item.node])
        for item in log.items
        if isinstance(item, Create | Write | Fsync | Unlink)
    ]
    # SQLite syncs the folder of a new journal within the sync of the journal: the gate is not asked between them
    within = [index for index, (kind, path) in enumerate(recorded) if (kind, path) == ("fsync", ".")]
    inferred = [index for index in within if recorded[index - 1][0] == "fsync"]
    assert gate.asked == [op for index, op in enumerate(recorded) if index not in inferred]
    assert gate.happened == len(gate.asked)


@pytest.mark.parametrize(
    ("kind", "mode", "answer", "name"),
    [
        ("create", "delete", OSError(errno.EACCES, "no"), "SQLITE_CANTOPEN"),
        ("write", "delete", OSError(errno.ENOSPC, "full"), "SQLITE_FULL"),
        ("write", "delete", OSError(errno.EIO, "broken"), "SQLITE_IOERR_WRITE"),
        ("write", "wal", OSError(errno.EIO, "broken"), "SQLITE_IOERR_WRITE"),
        ("write", "wal", 3, "SQLITE_FULL"),
        ("write", "delete", 0, "SQLITE_FULL"),
        ("fsync", "delete", OSError(errno.EIO, "broken"), "SQLITE_IOERR_FSYNC"),
        ("fsync", "wal", OSError(errno.EIO, "broken"), "SQLITE_IOERR_FSYNC"),
        ("truncate", "truncate", OSError(errno.EIO, "broken"), "SQLITE_IOERR_TRUNCATE"),
        ("unlink", "delete", OSError(errno.EIO, "broken"), "SQLITE_IOERR_DELETE"),
    ],
)
def test_a_refused_op_is_an_error_of_sqlite_and_the_trace_still_replays(
    home: Path, log: Log, kind: str, mode: str, answer: Any, name: str
) -> None:
    write_commits(Log(home), home, mode, "full").close()
    log = Log(home)
    with watch_sqlite(log, FailingGate(kind, 0, answer)), closing(sqlite3.connect(home / "a.db")) as connection:
        with pytest.raises(sqlite3.OperationalError) as caught:
            sqlite_workload.commit_with(connection, mode, COMMITS)
        assert replayed(log, home) == on_disk(home)
    assert caught.value.sqlite_errorname == name
    assert replayed(log, home) == on_disk(home)
    assert not log.unmeasured
    assert rows(home, log.trace().end()) == list(range(COMMITS))


def test_a_short_write_is_recorded_as_far_as_it_went(home: Path, log: Log) -> None:
    gate = FailingGate("write", 0, 100)
    with (
        watch_sqlite(log, gate),
        closing(sqlite3.connect(home / "a.db")) as connection,
        pytest.raises(sqlite3.OperationalError, match="full"),
    ):
        connection.execute("create table t (number)")
    first = next(item for item in log.items if isinstance(item, Write))
    assert len(first.data) == 100


def test_a_refused_fsync_is_recorded_as_failed(home: Path, log: Log) -> None:
    gate = FailingGate("fsync", 0, OSError(errno.EIO, "broken"))
    with (
        watch_sqlite(log, gate),
        closing(sqlite3.connect(home / "a.db")) as connection,
        pytest.raises(sqlite3.OperationalError),
    ):
        connection.execute("create table t (number)")
    assert [item.failed for item in log.items if isinstance(item, Fsync)][:1] == [True]


def test_a_refused_folder_sync_comes_after_the_unlink(home: Path, log: Log) -> None:
    with (
        watch_sqlite(log, FailingGate("fsync", 3, OSError(errno.EIO, "broken"))),
        closing(sqlite3.connect(home / "a.db")) as connection,
    ):
        connection.execute("pragma synchronous = extra")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("create table t (number)")
    assert caught.value.sqlite_errorname == "SQLITE_IOERR_DIR_FSYNC"
    unlink, sync = log.items[-2:]
    assert isinstance(unlink, Unlink)
    assert isinstance(sync, Fsync)
    assert (names(log.items)[sync.node], sync.failed) == (".", True)
    assert replayed(log, home) == on_disk(home)


@pytest.mark.parametrize("kind", ["create", "write", "fsync", "unlink"])
def test_a_bug_of_our_own_is_a_reason_and_sqlite_goes_on(home: Path, log: Log, kind: str) -> None:
    gate = FailingGate(kind, 1, RuntimeError("a bug"))
    with watch_sqlite(log, gate):
        write_commits(log, home, "delete", "extra").close()
    assert log.unmeasured == ["An op of SQLite was not recorded: RuntimeError('a bug')"]
    with closing(sqlite3.connect(home / "a.db")) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (COMMITS,)


def test_sqlite_goes_on_if_recording_fails(home: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sqlite_vfs, "causing_line", fails)
    with watch_sqlite(log):
        write_commits(Log(home), home, "delete", "extra").close()
    assert log.unmeasured == ["An op of SQLite was not recorded: RuntimeError('a bug')"]
    with closing(sqlite3.connect(home / "a.db")) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (COMMITS,)


def test_a_real_call_is_made_once_if_recording_it_fails(log: Log) -> None:
    made: list[str] = []

    def real(name: str) -> int:
        made.append(name)
        return 17

    def observe(_watch: Any, make: Any, _name: str) -> int:
        make()
        raise RuntimeError("a bug")

    assert sqlite_vfs._Watcher(log, None).observed("", "", observe, real, "call") == 17
    assert made == ["call"]


def test_a_real_call_is_made_once_if_a_signal_interrupts_it(log: Log) -> None:
    received: list[int] = []

    def handle(number: int, _frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handle)
    real = ctypes.CDLL(None)["raise"]  # in C: Python handles the signal only after it returns
    watch = sqlite_vfs._Watcher(log, None)
    try:
        code = watch.observed("", "", lambda _watch, make, _number: make(), real, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (code, received) == (0, [signal.SIGUSR1])
    assert isinstance(watch.interrupted, KeyboardInterrupt)


def test_no_other_thread_logs_between_the_real_call_and_its_record(
    home: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[bool] = []

    def try_lock() -> None:
        free.append(log.lock.acquire(blocking=False))
        if free[-1]:
            log.lock.release()

    def try_from_another_thread() -> None:
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()

    monkeypatch.setattr(sqlite_vfs, "causing_line", try_from_another_thread)
    with watch_sqlite(log):
        write_commits(Log(home), home, "delete", "extra").close()
    assert set(free) == {False}


class WaitingGate(FailingGate):
    """Waits for another thread, which logs something."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.blocked = False
        self._log = log

    def before(self, intent: Intent) -> int | None:
        self._wait()
        return super().before(intent)

    def after(self, *ops: Op) -> None:
        self._wait()
        super().after(*ops)

    def _wait(self) -> None:
        if not self.blocked:
            thread = threading.Thread(target=self._log.add, args=[Ack("elsewhere")])
            thread.start()
            thread.join(timeout=10)
            self.blocked = thread.is_alive()


def test_the_gate_may_wait_for_another_thread(home: Path, log: Log) -> None:
    gate = WaitingGate(log)
    with watch_sqlite(log, gate):
        write_commits(log, home, "delete", "extra").close()
    assert not gate.blocked
    assert replayed(log, home) == on_disk(home)


def test_an_interrupt_within_sqlite_is_raised_at_the_end_of_the_block(home: Path, log: Log) -> None:
    with pytest.raises(KeyboardInterrupt), watch_sqlite(log, FailingGate("write", 1, KeyboardInterrupt())):
        write_commits(log, home, "delete", "full").close()
    assert log.unmeasured
    with closing(sqlite3.connect(home / "a.db")) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (COMMITS,)
