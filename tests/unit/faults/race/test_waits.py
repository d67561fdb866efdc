"""A client process that waits lets the others run; one that waits in vain is a livelock or a hang, at once."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import functools
import os
import queue
import select
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio

from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race import processes
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.schedule import ClientFailed
from tests.unit.faults.race.file_racing import Client, explored, results


@pytest.fixture
def home() -> Iterator[Home]:
    with memory_home() as home:
        yield home


def sleep(seconds: float) -> None:
    time.sleep(seconds)


@contextlib.contextmanager
def silent_socket() -> Iterator[socket.socket]:
    """A connection on which nothing ever comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def select_socket(seconds: float) -> None:
    with silent_socket() as silent:
        select.select([silent], [], [], seconds)


def poll_socket(seconds: float) -> None:
    with silent_socket() as silent:
        poll = select.poll()
        poll.register(silent)
        poll.modify(silent, select.POLLIN)
        poll.poll(seconds * 1000)


def epoll_socket(seconds: float) -> None:
    with silent_socket() as silent, select.epoll() as epoll:
        epoll.register(silent, select.EPOLLIN)
        epoll.poll(seconds)


def wait_for_queue(seconds: float) -> None:
    with contextlib.suppress(queue.Empty):
        queue.Queue[int]().get(timeout=seconds)


def wait_for_simple_queue(seconds: float) -> None:
    with contextlib.suppress(queue.Empty):
        queue.SimpleQueue[int]().get(timeout=seconds)


def wait_for_condition(seconds: float) -> None:
    condition = threading.Condition()
    with condition:
        condition.wait(seconds)


def wait_for_lock(seconds: float) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


def wait_for_thread(seconds: float) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    thread.join(seconds)
    done.set()
    thread.join()


def wait_for_future(seconds: float) -> None:
    done = threading.Event()
    with ThreadPoolExecutor() as pool:
        future = pool.submit(done.wait)
        with contextlib.suppress(TimeoutError):
            future.result(seconds)
        done.set()


def wait_by_loop(seconds: float) -> None:
    asyncio.run(asyncio.sleep(seconds))


def wait_for_task(seconds: float) -> None:
    async def wait() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), seconds)

    asyncio.run(wait())


def wait_by_trio(seconds: float) -> None:
    trio.run(trio.sleep, seconds)


def wait_beside_idle_thread(seconds: float) -> None:
    async def wait() -> None:
        await asyncio.to_thread(int)
        await asyncio.sleep(seconds)

    asyncio.run(wait())


WAITS = [
    pytest.param(lambda seconds: threading.Event().wait(seconds), id="event"),
    pytest.param(lambda seconds: select.select([], [], [], seconds), id="select"),
    pytest.param(lambda seconds: select.poll().poll(seconds * 1000), id="poll"),
    pytest.param(lambda seconds: select.epoll().poll(seconds), id="epoll"),
    pytest.param(lambda seconds: selectors.PollSelector().select(seconds), id="selector by poll"),
    pytest.param(lambda seconds: selectors.DefaultSelector().select(seconds), id="selector"),
    pytest.param(lambda seconds: signal.sigtimedwait([signal.SIGUSR1], seconds), id="signal"),
    *(sleep, select_socket, poll_socket, epoll_socket),
    *(
        wait_for_queue,
        wait_for_simple_queue,
        wait_for_condition,
        wait_for_lock,
        wait_for_thread,
        wait_for_future,
    ),
    *(wait_by_loop, wait_for_task, wait_by_trio, wait_beside_idle_thread),
]


def polling(wait: Callable[[float], Any], seconds: float = 0.02, file: str = "door") -> Client:
    def client(home: Path) -> str:
        while not (home / file).exists():
            wait(seconds)
        return "in"

    return client


def opening(home: Path) -> None:
    (home / "door").mkdir()


@pytest.mark.parametrize("wait", WAITS)
class TestPolling:
    def test_lets_the_others_run(self, home: Home, wait: Callable[[float], Any]) -> None:
        runs = explored(home, polling(wait), opening)
        assert {run.results[0] for run, _ in runs} == {"in"}
        assert not any(run.stuck or run.diverged or run.unseen for run, _ in runs)
        assert max(len(run.steps) for run, _ in runs if not run.endless) < 20
        assert sum(bool(run.endless) for run, _ in runs) < 5

    def test_in_vain_is_a_livelock(
        self, home: Home, wait: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "MAX_WAKEUPS", 90)  # its clock runs faster from the 60th on
        (run, _), *_ = explored(home, polling(wait, 0.0001), preemptions=0)
        assert run.stuck == "livelock: client 1 keeps retrying (sleep)"

    def test_ends_at_the_deadline(self, home: Home, wait: Callable[[float], Any]) -> None:
        def client(home: Path) -> int:
            tries, deadline = 0, time.monotonic() + 0.5
            while time.monotonic() < deadline:
                tries += (home / "door").exists() + 1
                wait(0.01)
            return tries

        ((run, _),) = explored(home, client, preemptions=0)
        assert not run.stuck
        assert run.results[0] in (49, 50, 51)


def spin(home: Path) -> None:
    while not (home / "door").exists():
        pass


def spin_by_reading(home: Path) -> None:
    while not (home / "n").read_text():
        pass


def spin_for_a_lock(home: Path) -> None:
    while True:
        try:
            os.link(home / "n", home / "lock")
            return
        except FileExistsError:
            continue


def spin_for_a_file_lock(home: Path) -> None:
    with open(home / "n") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def freeing(home: Path) -> None:
    with open(home / "n", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.link(home / "n", home / "lock")
        (home / "door").mkdir()
        file.write("1")
        file.flush()
        os.unlink(home / "lock")


class TestSpinning:
    """Polling without a pause."""

    @pytest.mark.parametrize("client", [spin, spin_by_reading, spin_for_a_lock, spin_for_a_file_lock])
    def test_lets_the_others_run(self, home: Home, client: Client) -> None:
        (home.path / "n").touch()
        runs = explored(home, freeing, client, preemptions=1)
        assert not any(run.stuck or run.diverged for run, _ in runs)
        assert max(len(run.steps) for run, _ in runs if not run.endless) < 60

    def test_ends_at_the_deadline(self, home: Home) -> None:
        def client(home: Path) -> bool:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                if (home / "door").exists():
                    return True
            return False

        ((run, _),) = explored(home, client, preemptions=0)
        assert (run.stuck, run.results) == ("", {0: False})


class TestSeveral:
    def test_one_that_polls_a_thousand_times_is_a_livelock(self, home: Home) -> None:
        ((run, _),) = explored(home, polling(sleep), preemptions=0)
        assert run.stuck == "livelock: client 1 keeps retrying (sleep)"
        assert sum(step.blocked for step in run.steps) == 1000

    def test_clients_that_wake_each_other_are_a_livelock(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "MAX_WAKEUPS", 90)
        (run, _), *_ = explored(home, polling(sleep), polling(wait_by_loop), preemptions=0)
        assert run.stuck == "livelock: client 1 keeps retrying (sleep); client 2 keeps retrying (sleep)"

    def test_a_client_with_work_is_not_starved_by_those_that_poll(self, home: Home) -> None:
        runs = explored(home, polling(sleep), polling(sleep), opening, preemptions=0)
        assert {(run.results[0], run.results[1], run.stuck) for run, _ in runs} == {("in", "in", "")}

    def test_a_client_that_sleeps_and_works_is_none(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def working(home: Path) -> None:
            for number in range(120):
                (home / "n").write_text(str(number))
                time.sleep(1)

        monkeypatch.setattr(processes, "MAX_WAKEUPS", 90)

        ((run, _),) = explored(home, working, preemptions=0)
        assert not run.stuck

    def test_a_long_deadline_is_reached(self, home: Home) -> None:
        def client(home: Path) -> str:
            deadline = time.time() + 3600
            while time.time() < deadline:
                if (home / "door").exists():
                    return "in"
                time.sleep(0.1)
            return "gave up"

        assert results(home, client, client, preemptions=0) == {("gave up", "gave up")}

    def test_a_deadline_does_not_pass_while_another_client_runs(self, home: Home) -> None:
        """Trio waits for its thread as it waits for a server, but the thread is stopped meanwhile."""

        def looking(home: Path) -> bool:
            (home / "door").exists()

            async def look() -> bool:
                with trio.move_on_after(0.01) as scope:
                    await trio.to_thread.run_sync((home / "door").exists)
                    await trio.lowlevel.checkpoint()
                return scope.cancelled_caught

            return trio.run(look)

        def opening_slowly(home: Path) -> None:
            sum(range(3 * 10**6))
            (home / "door").mkdir()

        assert {is_late for is_late, _ in results(home, looking, opening_slowly)} == {False}


class TestHangs:
    def test_a_wait_that_nobody_ends_is_a_hang(self, home: Home) -> None:
        def client(home: Path) -> None:
            (home / "door").exists()
            threading.Event().wait()

        (run, _), *_ = explored(home, opening, client)
        line = client.__code__.co_firstlineno + 2
        assert run.stuck.startswith("client 2 hangs at ")
        assert run.stuck.endswith(f"test_waits.py:{line}: threading.Event().wait()")

    def test_a_task_that_nobody_ends_is_a_hang(self, home: Home) -> None:
        async def client(home: Path) -> None:
            await asyncio.to_thread((home / "door").exists)
            await asyncio.Event().wait()

        (run, _), *_ = explored(home, client, preemptions=0)
        assert run.stuck.endswith(f"test_waits.py:{client.__code__.co_firstlineno + 2}: await asyncio.Event().wait()")

    def test_a_loop_that_never_ends_is_a_hang(self, home: Home) -> None:
        def client(home: Path) -> None:
            (home / "door").exists()
            while True:
                home.name  # noqa: B018

        (run, _), *_ = explored(home, opening, client, timeout=0.2)
        assert "test_waits.py" in run.stuck
        assert [str(step.access) for step in run.steps] == ["mkdir door", "stat door", "hangs"]

    def test_a_hang_happens_again_in_the_same_schedule(self, home: Home) -> None:
        def client(home: Path) -> None:
            if (home / "door").exists() and not (home / "window").exists():
                threading.Event().wait()

        def opening(home: Path) -> None:
            (home / "door").mkdir()
            (home / "window").mkdir()

        hanging = [run for run, _ in explored(home, client, opening, preemptions=1) if run.stuck]
        assert hanging
        clients = ClientProcesses(home, [client, opening])
        with contextlib.closing(clients):
            again = clients.run(tuple(hanging[0].choices))
        assert (again.stuck, again.choices) == (hanging[0].stuck, hanging[0].choices)

    def test_a_slow_thread_is_not_a_hang(self, home: Home) -> None:
        def client(home: Path) -> str:
            done = queue.SimpleQueue[bool]()
            threading.Thread(target=lambda: done.put(sum(range(10**6)) > 0)).start()
            done.get()
            return "done" if (home / "door").exists() is False else "open"

        assert {result for (result,) in results(home, client, preemptions=0)} == {"done"}

    def test_threads_of_a_client_wait_for_each_other(self, home: Home) -> None:
        async def client(home: Path) -> list[bool]:
            looks = (asyncio.to_thread((home / name).exists) for name in "ab")
            return list(await asyncio.gather(*looks))

        for run, _ in explored(home, client, opening, preemptions=0):
            assert run.results[0] == [False, False], run.results


class Moment(datetime.datetime):
    """A time of a type of its own."""


class TestClock:
    def test_sleeping_takes_its_time_and_nothing_else_does(self, home: Home) -> None:
        def client(home: Path) -> tuple[float, ...]:
            (home / "door").exists()
            times = []
            clocks: list[tuple[Callable[[], float], Callable[[], int]]] = [
                (time.time, time.time_ns),
                (time.monotonic, time.monotonic_ns),
                (time.perf_counter, time.perf_counter_ns),
                *(
                    (functools.partial(time.clock_gettime, number), functools.partial(time.clock_gettime_ns, number))
                    for number in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)
                ),
            ]
            for clock, in_ns in clocks:
                begin, begin_ns = clock(), in_ns()
                sum(range(10**5))
                time.sleep(7)
                times += [round(clock() - begin, 4), round((in_ns() - begin_ns) / 1e9, 4)]
            return tuple(times)

        assert results(home, client, preemptions=0) == {((7.0,) * 10,)}

    @pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
    def test_dates_follow_it(self, home: Home) -> None:
        def client(home: Path) -> list[int]:
            (home / "door").exists()
            clocks: list[Callable[[], Any]] = [
                datetime.datetime.now,
                datetime.datetime.today,
                functools.partial(datetime.datetime.now, datetime.UTC),
                datetime.datetime.utcnow,
                Moment.now,
                datetime.date.today,
                lambda: datetime.date(*time.localtime()[:3]),
                lambda: datetime.date.fromisoformat(time.strftime("%Y-%m-%d")),
            ]
            begin = [clock() for clock in clocks]
            time.sleep(400 * 86400)
            return [(clock() - moment).days for clock, moment in zip(clocks, begin, strict=True)]

        assert [run.results[0] for run, _ in explored(home, client, preemptions=0)] == [[400] * 8]

    def test_dates_keep_their_type_and_the_real_time(self, home: Home) -> None:
        def client(home: Path) -> tuple[Any, ...]:
            (home / "door").exists()
            return datetime.datetime.now(), datetime.datetime.now(datetime.UTC), Moment.now()

        ((local, in_utc, moment),) = (run.results[0] for run, _ in explored(home, client, preemptions=0))
        assert (type(local), type(in_utc), type(moment)) == (datetime.datetime, datetime.datetime, Moment)
        assert in_utc.utcoffset() == datetime.timedelta()
        real = datetime.datetime.now().timestamp()
        assert all(abs(when.timestamp() - real) < 60 for when in (local, in_utc, moment))

    def test_an_invalid_sleep_raises(self, home: Home) -> None:
        def client(home: Path) -> None:
            (home / "door").exists()
            time.sleep(-1)

        ((run, _),) = explored(home, client, preemptions=0)
        assert isinstance(run.results[0], ClientFailed)
        assert isinstance(run.results[0].error, ValueError)
