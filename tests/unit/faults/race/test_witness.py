"""What clients change without a step is noticed, and what others change meanwhile, or their own threads, is not."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import witness
from tests.unit.faults.race.file_racing import Client, explored

LIBC = ctypes.CDLL(None)
NATIVE = "n, which was changed by native code or by a call that it could not replace"
OPEN = LIBC.open  # looked up before the client runs, which would be noted otherwise


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        (home.path / "n").write_text("0")
        yield home


def unseen(home: Home, *clients: Client) -> list[str]:
    (run, _), *_ = explored(home, *clients, preemptions=0)
    assert not run.stuck
    return run.unseen


def rewrite(home: Path) -> None:
    fd = OPEN(os.fsencode(home / "n"), os.O_WRONLY)
    LIBC.write(fd, b"1", 1)
    LIBC.close(fd)


def write_through_a_python_file(home: Path) -> None:
    """Write as `numpy.save` does."""
    with open(home / "n", "wb") as file:
        LIBC.write(file.fileno(), b"new", 3)


def write_between_two_steps(home: Path) -> None:
    (home / "m").write_text("1")
    rewrite(home)
    (home / "m").read_text()


def remove(home: Path) -> None:
    LIBC.unlink(os.fsencode(home / "n"))


@pytest.mark.parametrize("client", [rewrite, write_through_a_python_file, write_between_two_steps, remove])
def test_a_change_by_native_code_is_noted(home: Home, client: Client) -> None:
    assert unseen(home, client) == [NATIVE]


def rewrite_if_it_failed(home: Path) -> None:
    try:
        os.mkdir(home / "lock")
    except FileExistsError:
        rewrite(home)
    else:
        os.rmdir(home / "lock")


def rewrite_if_it_read_one(home: Path) -> None:
    if (home / "m").read_text() == "1":
        rewrite(home)
        (home / "n").exists()
        return
    for text in "1110":
        (home / "m").write_text(text)


@pytest.mark.parametrize("client", [rewrite_if_it_failed, rewrite_if_it_read_one])
def test_a_change_by_native_code_is_noted_in_later_schedules(home: Home, client: Client) -> None:
    """If it is made only because of another client."""
    (home.path / "m").write_text("0")
    _, *rest = explored(home, lambda home: client(home), lambda home: client(home), preemptions=1)
    assert [NATIVE] in [run.unseen for run, _ in rest]


def test_changes_of_others_and_of_threads_are_not_noted(home: Home) -> None:
    def waiting(home: Path) -> None:
        (home / "waits").touch()
        while not (home / "done").exists():
            time.sleep(0.1)

    def working(home: Path) -> None:
        def work(name: str) -> None:
            for number in range(5):
                (home / name).write_text(str(number))
                os.rename(home / name, home / f"{name}-{number}")

        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (home / "done").touch()

    assert unseen(home, waiting, working) == []


def test_a_file_that_goes_while_home_is_looked_at_hides_no_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a client are at work meanwhile."""
    real = os.scandir

    @contextlib.contextmanager
    def scandir(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with real(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        (home.path / "gone").unlink(missing_ok=True)
        yield found

    for name in ("gone", "later"):
        (home.path / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(witness, "_scandir", scandir)
        seen = witness.HomeWitness(str(home.path))
    assert str(home.path / "later") not in seen.unexplained()


def left_open(home: Home) -> Any:
    return open(home.path / "n", "r+b", buffering=0)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda file: file.read(), id="read"),
        pytest.param(lambda file: file.write(b"1"), id="write"),
        pytest.param(lambda file: os.pread(file.fileno(), 1, 0), id="pread"),
        pytest.param(lambda file: fcntl.flock(file, fcntl.LOCK_EX), id="flock"),
        pytest.param(lambda file: fcntl.lockf(file, fcntl.LOCK_EX), id="lockf"),
    ],
)
def test_a_file_that_was_opened_before_is_noted(home: Home, use: Callable[[Any], Any]) -> None:
    """It is not a file of this home any more, which is built again for each schedule; and clients share its lock."""
    with left_open(home) as file:
        reasons = unseen(home, lambda _: str(use(file)))
    assert reasons == ["n, which was opened before the clients began. Open it in the client"]


def test_a_file_that_was_only_left_open_is_not_noted(home: Home) -> None:
    with left_open(home):
        assert unseen(home, lambda home: (home / "n").write_text("1")) == []
