from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import CannotLock, FilePausedStore, LockTimeout, WfstateError, as_sync, samples
from pytest_wfstate.stores.file import lock as lock_module
from pytest_wfstate.stores.file import lock_holders
from pytest_wfstate.stores.file.lock import Kind, locked
from tests.unit.stores.file.kinds import GATE
from tests.unit.stores.file.kinds import KINDS as STORES
from tests.unit.stores.file.kinds import Kind as StoreKind
from tests.unit.stores.file.lockers import FORK, Program, can_lock, is_free

KINDS = [Kind.EXCLUSIVE, Kind.SHARED]

HOLD = """
with locked(home, Kind[sys.argv[2]]):
    print("held", flush=True)
    sys.stdin.read()
"""

DIE_WITH_A_CHILD = """
with locked(home, Kind.EXCLUSIVE):
    fork_child()
    os.kill(os.getpid(), signal.SIGKILL)
"""

RELEASE_WITH_A_CHILD = """
with locked(home, Kind.EXCLUSIVE):
    missed = dict(descriptors._open_now)
    descriptors._open_now.clear()  # as if the fork had not seen the descriptor: the child keeps its copy
    fork_child()
    descriptors._open_now.update(missed)
print("released", flush=True)
sys.stdin.read()
"""

FORK_WHILE_OPENING = """
opened, real = [], os.open
def slow(*args):
    opened.append(real(*args))
    os.open = real
    forker.start()
    forker.join(0.3)  # in vain if the fork waits, as it should, until the descriptor is known
    return opened[0]

def fork():
    if os.fork() == 0:
        try:
            os.fstat(opened[0])
            os._exit(1)
        except OSError:
            os._exit(0)

forker = threading.Thread(target=fork)
os.open = slow
with locked(home, Kind.EXCLUSIVE):
    forker.join()
    print("kept" if os.wait()[1] else "closed", flush=True)
"""

LEAVE_IN_CHILD = """
with locked(home, Kind.EXCLUSIVE):
    child = os.fork()
    if child == 0:
        other = os.open(home, os.O_RDONLY)  # takes the number of the descriptor that the fork closed
if child == 0:
    os.fstat(other)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


EXCLUSION = pytest.mark.parametrize(
    ("held", "wanted", "allowed"),
    [
        (Kind.EXCLUSIVE, Kind.EXCLUSIVE, False),
        (Kind.EXCLUSIVE, Kind.SHARED, False),
        (Kind.SHARED, Kind.EXCLUSIVE, False),
        (Kind.SHARED, Kind.SHARED, True),
    ],
)


@EXCLUSION
def test_a_lock_counts_between_threads(tmp_path: Path, held: Kind, wanted: Kind, allowed: bool) -> None:
    with ThreadPoolExecutor(1) as other, locked(tmp_path, held):
        assert other.submit(can_lock, tmp_path, wanted).result() is allowed


@EXCLUSION
def test_a_lock_counts_between_processes(
    tmp_path: Path, held: Kind, wanted: Kind, allowed: bool, programs: list[Program]
) -> None:
    programs.append(Program(HOLD, tmp_path, held.name))
    assert programs[0].says() == "held"

    assert can_lock(tmp_path, wanted) is allowed


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_ends_with_its_block(tmp_path: Path, kind: Kind) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path, kind):
        raise ZeroDivisionError

    assert is_free(tmp_path)


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []
    with locked(tmp_path, Kind.EXCLUSIVE) as fd:
        assert fd is not None
        assert os.path.samestat(os.fstat(fd), tmp_path.stat())
        assert os.listdir(tmp_path) == []

    assert os.listdir(tmp_path) == []
    assert before == [] or len(os.listdir("/proc/self/fd")) == len(before)


def test_a_killed_holder_frees_the_lock(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(HOLD, tmp_path, "EXCLUSIVE"))
    assert programs[0].says() == "held"
    assert not is_free(tmp_path)

    programs[0].end()

    assert is_free(tmp_path)


def test_a_forked_child_does_not_hold_the_lock_of_a_parent_that_died(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(FORK + DIE_WITH_A_CHILD, tmp_path))

    programs[0].process.wait()

    assert is_free(tmp_path)


def test_a_forked_child_does_not_hold_the_lock_that_its_parent_released(
    tmp_path: Path, programs: list[Program]
) -> None:
    programs.append(Program(FORK + RELEASE_WITH_A_CHILD, tmp_path))

    assert programs[0].says() == "released"

    assert is_free(tmp_path)


def test_a_child_forked_while_the_folder_is_being_opened_does_not_hold_it(
    tmp_path: Path, programs: list[Program]
) -> None:
    programs.append(Program(FORK_WHILE_OPENING, tmp_path))

    assert programs[0].says() == "closed"


def test_a_child_that_leaves_the_block_it_was_forked_in_closes_nothing(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(LEAVE_IN_CHILD, tmp_path))

    assert programs[0].says() == "7"


@pytest.mark.parametrize("moment", ["before it opens the gate", "behind the gate"])
def test_a_waiter_for_a_replaced_folder_locks_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    holder, real = os.open(home, os.O_RDONLY), fcntl.flock
    real(holder, fcntl.LOCK_EX)
    left = []

    def meanwhile(*_: Any) -> None:
        monkeypatch.undo()
        left.extend(os.listdir(home))
        shutil.rmtree(home)
        home.mkdir()
        os.close(holder)

    def flock(fd: int, how: int) -> None:
        try:
            real(fd, how)
        except BlockingIOError:
            meanwhile()
            raise

    if moment == "behind the gate":
        monkeypatch.setattr(time, "sleep", meanwhile)
    else:
        monkeypatch.setattr(fcntl, "flock", flock)

    with locked(home, Kind.EXCLUSIVE) as fd:
        assert fd is not None
        assert os.path.samestat(os.fstat(fd), home.stat())
        assert not is_free(home)
    assert left == ([GATE] if moment == "behind the gate" else [])


def test_a_missing_folder_has_no_descriptor(tmp_path: Path) -> None:
    with locked(tmp_path / "none", Kind.SHARED) as fd:
        assert fd is None


def test_a_folder_that_is_removed_while_somebody_waits_has_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    holder = os.open(home, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)

    def meanwhile(_: float) -> None:
        shutil.rmtree(home)
        os.close(holder)

    monkeypatch.setattr(time, "sleep", meanwhile)

    with locked(home, Kind.EXCLUSIVE) as fd:
        assert fd is None


def test_a_lock_that_stays_held_is_an_error_that_names_the_holder(tmp_path: Path, programs: list[Program]) -> None:
    programs.append(Program(HOLD, tmp_path, "EXCLUSIVE"))
    assert programs[0].says() == "held"

    with pytest.raises(LockTimeout) as error, locked(tmp_path, Kind.SHARED, wait=0):
        pass

    assert isinstance(error.value, TimeoutError)
    assert (error.value.errno, error.value.filename) == (errno.ETIMEDOUT, str(tmp_path))
    pid = programs[0].process.pid
    assert re.search(rf"still locked after 0 s\. It is locked by process {pid} \(.*python", str(error.value))
    assert "Nothing was changed. Let that call finish or end that process" in str(error.value)


def test_a_lock_that_this_process_holds_itself_is_named(tmp_path: Path) -> None:
    with (
        locked(tmp_path, Kind.EXCLUSIVE),
        pytest.raises(LockTimeout, match=r"It is locked by another call in this process\. Nothing was changed"),
        locked(tmp_path, Kind.EXCLUSIVE, wait=0),
    ):
        pass


@pytest.mark.parametrize("locks", ["", "1: FLOCK", "1: POSIX  ADVISORY  WRITE 1 {file} 0 EOF"])
def test_a_holder_that_the_system_does_not_name_is_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: str
) -> None:
    folder = tmp_path.stat()
    file = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    listing = tmp_path / "locks"
    listing.write_text(locks.format(file=file))
    monkeypatch.setattr(lock_holders, "_LOCKS", listing)

    with (
        locked(tmp_path, Kind.EXCLUSIVE),
        pytest.raises(LockTimeout, match="This system does not say by whom"),
        locked(tmp_path, Kind.SHARED, wait=0),
    ):
        pass


@pytest.mark.parametrize("wait", [0, 0.001, 1, 20])
def test_a_waiter_sleeps_for_as_long_as_it_may_and_not_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    with locked(tmp_path, Kind.SHARED), pytest.raises(LockTimeout), locked(tmp_path, Kind.EXCLUSIVE, wait):
        pass

    assert wait <= sum(pauses) <= wait + 0.004
    assert max(pauses, default=0) <= 0.004


@pytest.mark.parametrize("kind", STORES, ids=str)
def test_every_store_waits_for_as_long_as_it_was_told(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.change(kind.open(tmp_path), "a", 1)
    store = as_sync(kind.store(tmp_path, lock_timeout=0.5))
    monkeypatch.setattr(time, "sleep", lambda _: None)

    with locked(tmp_path, Kind.EXCLUSIVE), pytest.raises(LockTimeout, match=r"still locked after 0\.5 s"):
        kind.change(store, "a", 2)

    kind.change(store, "a", 2)
    assert kind.items(kind.load(store, "a"))[-1] == 2


@pytest.mark.parametrize("wait", [-1, math.nan, "20", None, True])
def test_a_lock_timeout_that_is_no_time_is_refused(tmp_path: Path, wait: Any) -> None:
    with pytest.raises(ValueError, match=r"lock_timeout is .* at least 0; math\.inf waits forever"):
        FilePausedStore(tmp_path, lock_timeout=wait)


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("name", ["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EBADF", "EINVAL"])
def test_a_file_system_without_locks_is_refused_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(errno, name)
    refuse_locks(monkeypatch, number)

    with pytest.raises(CannotLock) as error, locked(tmp_path, Kind.EXCLUSIVE):
        pass

    assert isinstance(error.value, WfstateError)
    assert (error.value.errno, error.value.filename) == (number, str(tmp_path))
    message = str(error.value)
    assert f"cannot be locked ({os.strerror(number)})" in message
    assert str(tmp_path) in message
    assert "Keep the store on a local disk, or use a SQL or Redis store" in message


def test_a_store_on_a_file_system_without_locks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_locks(monkeypatch, errno.ENOLCK)

    with pytest.raises(CannotLock):
        FilePausedStore(tmp_path).save(samples.paused())

    assert os.listdir(tmp_path) == []


def test_another_error_of_the_lock_is_not_disguised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_locks(monkeypatch, errno.EIO)

    with pytest.raises(OSError) as error, locked(tmp_path, Kind.EXCLUSIVE):
        pass

    assert type(error.value) is OSError
    assert error.value.errno == errno.EIO


def test_a_system_without_flock_is_refused_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "fcntl", None)

    with pytest.raises(CannotLock, match=r"need flock, which this system does not have\. Use a SQL or Redis store"):
        FilePausedStore(tmp_path).save(samples.paused())
