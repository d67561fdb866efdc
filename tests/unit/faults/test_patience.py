"""Patience counts the time in which code computes or waits, however long a busy machine keeps it from that."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_wfstate.engine.alarm import Alarm, TimeIsUp
from pytest_wfstate.faults import patience
from pytest_wfstate.faults.disk.home import memory_home
from pytest_wfstate.faults.patience import Patience, ThreadTimes
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.storm import Storm, WorkerLost
from pytest_wfstate.faults.race.tasks import Tasks
from pytest_wfstate.faults.race.threads import Threads


class Machine:
    """A machine on which a second passes between two looks, and threads get no processor for a part of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.threads = {"1": ThreadTimes(0, 0, is_kept=False), "2": ThreadTimes(0, 0, is_kept=False)}

    def looks(self, waiting: Patience, *starved: float, ready: bool = False, progress: int = 0, each: float = 1) -> int:
        """Return at which look it is over, if in each second threads get no processor for so long.

        If they are `ready`, they are never seen while they wait for something, and the kernel does not say how long.
        """
        for look in range(1, 1000):
            if waiting.is_over(progress):
                return look
            self.seconds += each
            for thread, more in zip(self.threads, starved, strict=False):
                ran, waited, _ = self.threads[thread]
                self.threads[thread] = ThreadTimes(ran + 1 - more, waited if ready else waited + more, is_kept=ready)
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(patience, "now", lambda: machine.seconds)
    monkeypatch.setattr(patience, "_threads", lambda _: dict(machine.threads))
    return machine


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize(
    ("starved", "look"),
    [
        pytest.param((), 10, id="idle"),
        pytest.param((0.01, 0.01), 10, id="hardly"),
        pytest.param((0.5,), 18, id="half"),
        pytest.param((0, 0.5), 18, id="another thread"),
        pytest.param((1.0,), 0, id="all the time"),
    ],
)
def test_time_without_a_processor_does_not_count(
    machine: Machine, starved: tuple[float, ...], look: int, ready: bool
) -> None:
    assert machine.looks(Patience(10), *starved, ready=ready) == look


def test_time_in_which_nobody_could_look_does_not_count(machine: Machine) -> None:
    assert machine.looks(Patience(10), each=1000) == 10


def test_it_begins_again_at_each_step(machine: Machine) -> None:
    waiting = Patience(10)
    for progress in range(20):
        assert not waiting.is_over(progress)
        machine.seconds += 1
    assert machine.looks(waiting, progress=20) == 10


def test_the_kernel_tells_which_threads_could_run() -> None:
    threads = patience._threads((os.getpid(),))
    own = threads[str(threading.get_native_id())]
    assert own.ran > 0
    assert own.starved >= 0
    assert own.is_kept
    assert patience._threads((2**30,)) == {}


def hangs_in_threads(work: Callable[[Any], Any]) -> bool:
    with contextlib.closing(Threads(object, [work], 0.02)) as threads:
        return bool(threads.run(()).stuck)


def hangs_in_tasks(work: Callable[[Any], Any]) -> bool:
    with contextlib.closing(Tasks(object, [work], 0.02)) as tasks:
        return bool(tasks.run(()).stuck)


def hangs_in_a_process(work: Callable[[Any], Any]) -> bool:
    def client(home: Any) -> None:
        thread = threading.Thread(target=work, args=(home,))
        thread.start()
        thread.join()

    with memory_home() as home, contextlib.closing(ClientProcesses(home, [client], 0.02)) as processes:
        return bool(processes.run(()).stuck)


def hangs_in_a_storm(work: Callable[[Any], Any]) -> bool:
    @contextlib.contextmanager
    def program() -> Iterator[Callable[[Any], Any]]:
        yield work

    try:
        storm = Storm(program, 1, random.Random(1), deaths=False, threads=False, timeout=0.02)
        with contextlib.closing(storm):
            storm.round([[1]])
    except WorkerLost:
        return True
    return False


def hangs_in_a_call(work: Callable[[Any], Any]) -> bool:
    try:
        with contextlib.closing(Alarm(0.02)) as alarm, alarm:
            work(None)
    except TimeIsUp:
        return True
    return False


@pytest.mark.parametrize("is_starved", [True, False])
@pytest.mark.parametrize(
    "hangs", [hangs_in_threads, hangs_in_tasks, hangs_in_a_process, hangs_in_a_storm, hangs_in_a_call]
)
def test_only_what_had_its_time_hangs(
    monkeypatch: pytest.MonkeyPatch, hangs: Callable[[Callable[[Any], Any]], bool], is_starved: bool
) -> None:
    answer, theirs = os.pipe()
    looks = 0

    def threads(_: tuple[int, ...]) -> dict[str, ThreadTimes]:
        nonlocal looks
        looks += 1
        if looks == 20:
            os.write(theirs, b"xx")
        return {"1": ThreadTimes(0, 0, is_kept=is_starved)}

    monkeypatch.setattr(patience, "_threads", threads)
    assert hangs(lambda _: os.read(answer, 1)) != is_starved
    os.write(theirs, b"xx")
    os.close(answer)
    os.close(theirs)
