"""Clients in threads that would block let others run; where the scheduler cannot interleave them, that is noted."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import queue
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, as_sync
from pytest_wfstate.faults.race.explorer import By
from pytest_wfstate.faults.race.schedule import ScheduleRun
from tests.unit.faults.race.racing import CLOCKS, Counter, explored, results

WRITE_LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class TestHandovers:
    def test_an_event_hands_over(self) -> None:
        class Box:
            def __init__(self) -> None:
                self.full = threading.Event()
                self.value = ""

            def put(self) -> None:
                self.value = "here"
                self.full.set()

            def get(self) -> str:
                self.full.wait()
                return self.value

        assert results(explored(Box, Box.get, Box.put)) == {("here", None)}

    def test_a_condition_hands_over(self) -> None:
        class Box:
            def __init__(self) -> None:
                self.changed = threading.Condition()
                self.values: list[int] = []

            def put(self) -> None:
                with self.changed:
                    self.values.append(1)
                    self.changed.notify()

            def get(self) -> int:
                with self.changed:
                    self.changed.wait_for(lambda: self.values)
                    return self.values.pop()

        assert results(explored(Box, Box.get, Box.put)) == {(1, None)}

    @pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
    def test_a_queue_hands_over(self, kind: str) -> None:
        def get(shared: Any) -> Any:
            return shared.get()

        def put(shared: Any) -> None:
            shared.put("here")

        assert results(explored(lambda: getattr(queue, kind)(), get, put)) == {("here", None)}

    def test_a_wait_with_a_limit_times_out_when_no_client_can_run(self) -> None:
        def get(shared: Any) -> Any:
            with contextlib.suppress(queue.Empty):
                return shared.get(timeout=3600)
            return "nothing"

        assert results(explored(lambda: queue.Queue(), get, get)) == {("nothing", "nothing")}

    def test_a_sleeping_client_lets_others_run(self) -> None:
        def patient(shared: list[str]) -> str:
            while not shared:
                time.sleep(3600)
            return shared[0]

        assert results(explored(list, patient, lambda shared: shared.append("here"))) == {("here", None)}


class TestTime:
    def test_a_client_can_poll_any_clock_until_a_deadline(self) -> None:
        def patient(shared: list[str]) -> int:
            late = 0
            for look in CLOCKS:
                end = look() + 30
                while not shared and look() < end:
                    time.sleep(0.5)
                late += look() >= end
            return late

        assert results(explored(list, patient, preemptions=0)) == {(len(CLOCKS),)}

    def test_a_client_made_after_an_earlier_race_can_poll_a_clock_that_it_holds(self) -> None:
        results(explored(list, lambda _: None, preemptions=0))  # the heap is known from here on

        def patient(shared: list[str], clock: Callable[[], float] = time.monotonic) -> bool:
            end = clock() + 30
            while not shared and clock() < end:
                time.sleep(0.5)
            return clock() >= end

        assert results(explored(list, patient, preemptions=0)) == {(True,)}

    @pytest.mark.parametrize("by", ["line", "opcode"])
    @pytest.mark.parametrize(
        ("pause", "expected"),
        [
            pytest.param(lambda: time.sleep(0.0001), {"here"}, id="sleep"),
            pytest.param(lambda: threading.Event().wait(0.0001), {"here"}, id="event"),
            pytest.param(lambda: None, {"here", "late"}, id="none"),
        ],
    )
    def test_a_client_can_poll_however_it_pauses(self, pause: Callable[[], Any], expected: set[str], by: By) -> None:
        def patient(shared: list[str]) -> str:
            end = time.monotonic() + 30
            while not shared and time.monotonic() < end:
                pause()
            return "here" if shared else "late"

        runs = explored(list, patient, lambda shared: shared.append("here"), by=by, preemptions=0)
        assert {found for found, _ in results(runs)} == expected
        (outcome,) = results(explored(list, patient, by=by, preemptions=0))
        assert outcome == ("late",)

    def test_dates_show_the_real_time_again_when_a_race_is_over(self) -> None:
        before = [*map(dict, map(vars, (datetime.datetime, datetime.date)))]
        results(explored(list, lambda _: time.sleep(10**8), preemptions=0))
        assert [*map(dict, map(vars, (datetime.datetime, datetime.date)))] == before


HANDED_OVER = ["work handed to another thread"]


def run_once(setup: Callable[[], Any], client: Callable[[Any], Any]) -> ScheduleRun:
    ((run, _), *_) = explored(setup, client, preemptions=0)
    return run


class TestUnseen:
    def test_a_thread_of_a_client_is_noted(self) -> None:
        def client(counter: Counter) -> None:
            thread = threading.Thread(target=counter.add)
            thread.start()
            thread.join()

        assert run_once(Counter, client).unseen == HANDED_OVER

    def test_a_thread_of_the_shared_object_is_noted(self) -> None:
        def setup() -> queue.Queue[int]:
            shared: queue.Queue[int] = queue.Queue()
            threading.Thread(target=lambda: shared.put(1)).start()
            return shared

        assert run_once(setup, lambda shared: shared.get()).unseen == HANDED_OVER

    def test_a_pool_is_noted(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()  # starts its thread
            assert run_once(Counter, lambda counter: pool.submit(counter.add).result()).unseen == HANDED_OVER

    def test_a_pool_that_a_client_makes_is_noted(self) -> None:
        def client(counter: Counter) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(counter.add).result()

        before = set(threading.enumerate())
        assert run_once(Counter, client).unseen == HANDED_OVER
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before

    def test_an_event_loop_in_another_thread_is_noted(self) -> None:
        store = as_sync(MemoryEffectStore())
        store.load_checkpoint("t")
        assert run_once(Counter, lambda _: store.load_checkpoint("t")).unseen == HANDED_OVER

    @pytest.mark.parametrize(
        "lock",
        [
            pytest.param(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), id="flock"),
            pytest.param(lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), id="lockf"),
            pytest.param(lambda fd: os.lockf(fd, os.F_LOCK, 0), id="os.lockf"),
            pytest.param(lambda fd: fcntl.fcntl(fd, fcntl.F_SETLKW, WRITE_LOCK), id="fcntl"),
            pytest.param(lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, WRITE_LOCK), id="open file description"),
        ],
    )
    def test_a_file_lock_is_noted(self, tmp_path: Path, lock: Callable[[int], Any]) -> None:
        def client(path: Path) -> None:
            with open(path / "lock", "w") as file:
                lock(file.fileno())
                path.exists()

        assert all("a file lock" in run.unseen[0] for run, _ in explored(lambda: tmp_path, client, client))
