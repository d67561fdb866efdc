"""A workload with several threads or tasks is recorded in several orders, each a real execution."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, ErrorBug, NotMeasured
from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.faults.replay_id import ReplayId, TraceChanged
from pytest_wfstate.stores.adapt import as_sync
from tests.unit.faults.conftest import Lab, accept
from tests.unit.faults.disk.notes import read, save, sync


def append(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(f"{line}\n")


class TestOrders:
    def test_every_order_is_explored(self, lab: Lab) -> None:
        crash = lab()
        acked: set[tuple[str, ...]] = set()

        def workload(home: Path) -> None:
            def log(line: str) -> None:
                append(home / "log", line)
                crash.ack(line)

            thread = threading.Thread(target=log, args=("b",))
            thread.start()
            log("a")
            thread.join()

        def check(disk: Disk) -> None:
            acked.add(tuple(disk.acked))

        result = crash.explore(workload, check, model="kill")
        assert {("a", "b"), ("b", "a")} <= acked
        assert result.orders == ["", "late", "early"]
        assert "3 orders of its threads and tasks" in str(result)

    def test_one_thread_is_recorded_once(self, lab: Lab) -> None:
        runs: list[Path] = []

        def workload(home: Path) -> None:
            runs.append(home)
            save(home, "text")

        result = lab().explore(workload, accept)
        assert len(runs) == 1
        assert result.orders == [""]
        assert "order" not in str(result)

    def test_a_thread_that_did_nothing_is_recorded_in_other_orders_and_explored_once(self, lab: Lab) -> None:
        """Whether it has something to do may be up to the load of the machine."""

        def workload(home: Path) -> None:
            idle = threading.Thread(target=lambda: None)
            idle.start()
            save(home, "text")
            idle.join()

        result = lab().explore(workload, accept, model="kill")
        assert result.orders == ["", "late", "early"]
        assert result.tried == lab().explore(lambda home: save(home, "text"), accept, model="kill").tried

    def test_orders_that_are_equal_are_explored_once(self, lab: Lab) -> None:
        crash = lab()

        def workload(home: Path) -> None:
            with ThreadPoolExecutor() as pool:
                pool.submit(save, home, "text").result()
            crash.ack("text")

        result = crash.explore(workload, accept, model="kill")
        assert result.orders == ["", "late", "early"]
        once = lab().explore(lambda home: save(home, "text"), accept, model="kill")
        assert result.tried == once.tried + 1  # the acknowledgement

    def test_thorough_records_more_orders(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            threads = [threading.Thread(target=append, args=(home / name, "text")) for name in "abc"]
            for thread in threads:
                thread.start()
            append(home / "main", "text")
            for thread in threads:
                thread.join()

        few = lab().explore(workload, accept, model="kill")
        many = lab(bounds=PROFILES["thorough"]).explore(workload, accept, model="kill")
        assert len(few.orders) <= 3 < len(many.orders)

    def test_tasks_one_after_the_other_are_recorded_once(self, lab: Lab) -> None:
        runs: list[Path] = []

        class Notes:
            def __init__(self, home: Path) -> None:
                self._home = home

            async def save(self, text: str) -> None:
                save(self._home, text)

        def workload(home: Path) -> None:
            runs.append(home)
            notes = as_sync(Notes(home))
            notes.save("a")
            notes.save("b")
            asyncio.run(Notes(home).save("c"))

        lab().explore(workload, accept)
        assert len(runs) == 1

    def test_one_task_is_recorded_once(self, lab: Lab) -> None:
        runs: list[Path] = []

        async def workload(home: Path) -> None:
            runs.append(home)
            await asyncio.sleep(0)
            save(home, "text")

        lab().explore(workload, accept)
        assert len(runs) == 1


class TestHolding:
    """Whatever threads do with each other, holding some back never deadlocks."""

    @staticmethod
    def explored(lab: Lab, workload: Callable[[Path], Any]) -> CrashResult:
        return lab().explore(workload, accept, model="kill")

    # A parameter that is a real call would make every recording of the session search for who else holds it.
    @pytest.mark.parametrize(
        "wait", [lambda seconds: time.sleep(seconds), threading.Event().wait], ids=["sleep", "event"]
    )
    def test_a_main_thread_that_polls(self, lab: Lab, wait: Callable[[float], object]) -> None:
        def workload(home: Path) -> None:
            thread = threading.Thread(target=save, args=(home, "text"))
            thread.start()
            while not (home / "note").exists():
                wait(0.0005)
            thread.join()

        result = self.explored(lab, workload)
        assert result.verdict == "CLEAN"
        assert result.orders == ["", "late", "early"]

    def test_a_main_thread_that_spins(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pytest_wfstate.faults.record.turns._PATIENCE", 0.1)

        def workload(home: Path) -> None:
            thread = threading.Thread(target=save, args=(home, "text"))
            thread.start()
            while thread.is_alive():
                pass

        result = self.explored(lab, workload)
        assert result.verdict == "CLEAN"
        assert result.orders == ["", "early"]
        assert "not recorded in the order in which the other threads and tasks were held back" in str(result)

    def test_a_thread_that_takes_long_to_start_still_goes_first(self, lab: Lab) -> None:
        """It spins between the moment when `start` returns and its first line."""
        disks: list[set[str]] = []

        def spin(*_: object) -> None:
            sys.setprofile(None)
            spins = itertools.repeat(None, 2_000_000)
            while next(spins, ...) is None:
                pass

        def workload(home: Path) -> None:
            thread = threading.Thread(target=append, args=(home / "a", "text"))
            threading.setprofile(spin)
            thread.start()
            threading.setprofile(None)
            append(home / "main", "text")
            thread.join()

        lab().explore(workload, lambda disk: disks.append({path.name for path in disk.home.iterdir()}), model="kill")
        assert {"a"} in disks
        assert {"main"} in disks

    def test_a_thread_with_a_run_of_its_own_goes_first_and_keeps_it(self, lab: Lab) -> None:
        disks: list[set[str]] = []

        def workload(home: Path) -> None:
            def run() -> None:
                sum(range(2_000_000))
                append(home / "a", "text")

            thread = threading.Thread()
            thread.run = run  # type: ignore[method-assign]
            thread.start()
            append(home / "main", "text")
            thread.join()
            assert thread.run is run

        lab().explore(workload, lambda disk: disks.append({path.name for path in disk.home.iterdir()}), model="kill")
        assert {"a"} in disks
        assert {"main"} in disks

    @pytest.mark.parametrize("pause", [lambda: time.sleep(0.001), lambda: None], ids=["now and then", "all the time"])
    def test_a_thread_that_writes_until_it_is_stopped(
        self, lab: Lab, pause: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_wfstate.faults.record.turns._MOST_ITEMS", 50)

        def workload(home: Path) -> None:
            stop: list[bool] = []

            def beat() -> None:
                while not stop:
                    append(home / "beat", "alive")
                    pause()

            thread = threading.Thread(target=beat)
            thread.start()
            append(home / "log", "text")
            stop.append(True)
            thread.join()

        assert self.explored(lab, workload).verdict == "CLEAN"

    def test_a_main_thread_that_writes_until_another_has_finished(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            thread = threading.Thread(target=save, args=(home, "text"))
            thread.start()
            while thread.is_alive():
                append(home / "progress", "waiting")
                time.sleep(0.001)
            thread.join()

        assert self.explored(lab, workload).verdict == "CLEAN"

    @pytest.mark.parametrize("seconds", [0.001, 0])
    def test_a_task_that_writes_until_it_is_cancelled(
        self, lab: Lab, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_wfstate.faults.record.task_turns._MOST_HELD", 50)

        async def workload(home: Path) -> None:
            async def beat() -> None:
                while True:
                    append(home / "beat", "alive")
                    await asyncio.sleep(seconds)

            task = asyncio.create_task(beat())
            for number in range(3):
                append(home / f"log{number}", "text")
                await asyncio.sleep(seconds)
            task.cancel()

        assert lab().explore(lambda home: asyncio.run(workload(home)), accept, model="kill").verdict == "CLEAN"

    def test_a_thread_that_waits_for_the_main_thread(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            go = threading.Event()
            lock = threading.Lock()

            def wait() -> None:
                go.wait()
                with lock:
                    append(home / "b", "text")

            thread = threading.Thread(target=wait)
            thread.start()
            with lock:
                append(home / "a", "text")
                go.set()
                append(home / "a", "more")
            thread.join()

        assert self.explored(lab, workload).verdict == "CLEAN"

    def test_threads_that_hand_work_to_each_other(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            first: queue.Queue[str] = queue.Queue()
            second: queue.SimpleQueue[str] = queue.SimpleQueue()

            def forward() -> None:
                for _ in range(5):
                    text = first.get()
                    append(home / "b", text)
                    second.put(text)

            thread = threading.Thread(target=forward)
            thread.start()
            for number in range(5):
                append(home / "a", f"{number}")
                first.put(f"{number}")
                assert second.get() == f"{number}"
            thread.join()

        assert self.explored(lab, workload).verdict == "CLEAN"

    @pytest.mark.parametrize("shared", [False, True], ids=["two connections", "one connection"])
    def test_threads_that_write_to_one_database(self, lab: Lab, shared: bool) -> None:
        def workload(home: Path) -> None:
            def connect() -> sqlite3.Connection:
                return sqlite3.connect(home / "db", check_same_thread=False, isolation_level=None)

            def insert(db: sqlite3.Connection, text: str) -> None:
                for _ in range(3):
                    with lock:
                        db.execute("insert into notes values (?)", (text,))

            first = connect()
            second = first if shared else connect()
            lock: Any = threading.Lock() if shared else contextlib.nullcontext()
            first.execute("create table notes (text)")
            thread = threading.Thread(target=insert, args=(second, "b"))
            thread.start()
            insert(first, "a")
            thread.join()
            first.close()
            second.close()

        result = self.explored(lab, workload)
        assert result.verdict == "CLEAN"
        assert result.orders == ["", "late", "early"]

    def test_threads_that_never_end_are_not_measured(self, lab: Lab) -> None:
        stop = threading.Event()

        def workload(home: Path) -> None:
            def write_and_wait() -> None:
                append(home / "b", "text")
                stop.wait()

            threading.Thread(target=write_and_wait).start()
            append(home / "a", "text")

        with pytest.raises(NotMeasured, match="is still running"):
            self.explored(lab, workload)
        stop.set()

    def test_a_thread_that_has_run_and_is_about_to_end_is_no_reason(self, lab: Lab) -> None:
        has_run, may_end = threading.Event(), threading.Event()

        def hold(frame: Any, event: str, _: object) -> None:
            if event == "return" and frame.f_code is threading.Thread.run.__code__:
                has_run.set()
                may_end.wait()

        def workload(home: Path) -> None:
            threading.Thread(target=lambda: sys.setprofile(hold)).start()
            has_run.wait()
            append(home / "a", "text")

        try:
            assert self.explored(lab, workload).verdict == "CLEAN"
        finally:
            may_end.set()


class TestRunningAgain:
    def test_every_recording_starts_from_what_setup_left(self, lab: Lab) -> None:
        crash = lab()
        ledger = crash.world([])
        starts: list[tuple[str | None, list[str]]] = []

        def workload(home: Path) -> None:
            starts.append((read(home), list(ledger)))
            with ThreadPoolExecutor() as pool:
                pool.submit(save, home, "new")
                ledger.append("paid")

        crash.explore(workload, accept, setup=lambda home: save(home, "old"), model="kill")
        assert len(starts) == 3
        assert set(map(str, starts)) == {str(("old", []))}

    def test_a_workload_that_can_run_only_once_says_so(self, lab: Lab) -> None:
        runs: list[Path] = []

        def workload(home: Path) -> None:
            runs.append(home)
            if len(runs) > 1:
                raise RuntimeError("already done")
            with ThreadPoolExecutor() as pool:
                pool.submit(save, home, "text")
                append(home / "log", "text")

        result = lab().explore(workload, accept, model="kill")
        assert result.verdict == "CLEAN"
        assert result.orders == [""]
        assert "recorded in one order only, since it cannot be run again: it raised RuntimeError at" in str(result)

    def test_an_error_that_only_another_order_shows_is_raised(self, lab: Lab) -> None:
        runs: list[Path] = []

        def workload(home: Path) -> None:
            runs.append(home)
            saved: list[str] = []

            def saving() -> None:
                save(home, "text")
                saved.append("text")

            with ThreadPoolExecutor() as pool:
                job = pool.submit(saving)
                if len(runs) != 2:  # in the second recording, the thread is held back
                    job.result()
                append(home / "log", saved[0])

        with pytest.raises(IndexError) as caught:
            lab().explore(workload, accept, model="kill")
        assert any("the other threads and tasks were held back" in note for note in caught.value.__notes__)


class TestReplay:
    @pytest.mark.parametrize("_", range(6))
    def test_a_violation_of_threads_replays(self, lab: Lab, _: int) -> None:
        def explore(crash: Crash) -> CrashBug:
            def workload(home: Path) -> None:
                threads = [threading.Thread(target=write, args=(home / name,)) for name in "abc"]
                for thread in threads:
                    thread.start()
                write(home / "main")
                for thread in threads:
                    thread.join()

            def write(path: Path) -> None:
                append(path, "1")
                append(path, "2")
                sync(path)
                crash.ack(path.name)

            def check(disk: Disk) -> None:
                assert len(disk.acked) == 4 or not {"b", "main"} <= set(disk.acked)

            with pytest.raises(CrashBug) as caught:
                crash.explore(workload, check, model="kill")
            return caught.value

        first = explore(lab())
        again = explore(lab(replay=ReplayId.read(first.replay_id)))
        assert again.replay_id == first.replay_id

    def test_a_violation_of_turns_that_are_drawn_replays(self, lab: Lab) -> None:
        """The second thread goes first, and then the main one: neither `late` nor `early` does that."""

        def explore(crash: Crash) -> CrashBug:
            def workload(home: Path) -> None:
                threads = [threading.Thread(target=write, args=(home / name,)) for name in "abc"]
                for thread in threads:
                    thread.start()
                write(home / "main")
                for thread in threads:
                    thread.join()

            def write(path: Path) -> None:
                append(path, "text")
                crash.ack(path.name)

            def check(disk: Disk) -> None:
                assert disk.acked != ["b", "main"]

            with pytest.raises(CrashBug) as caught:
                crash.explore(workload, check, model="kill")
            return caught.value

        first = explore(lab(bounds=PROFILES["thorough"]))
        assert explore(lab(replay=ReplayId.read(first.replay_id))).replay_id == first.replay_id

    def test_an_order_that_cannot_be_kept_is_not_blamed_on_the_code(self, lab: Lab) -> None:
        """The thread and the main one do the same in both runs, but the second time, the main one goes last."""
        is_first = True

        def explore(crash: Crash) -> None:
            def workload(home: Path) -> None:
                wrote = threading.Event()

                def write() -> None:
                    append(home / "b", "text")
                    wrote.set()

                thread = threading.Thread(target=write)
                if is_first:
                    append(home / "a", "text")
                    thread.start()
                else:
                    thread.start()
                    wrote.wait()
                    append(home / "a", "text")
                thread.join()
                crash.ack()

            def check(disk: Disk) -> None:
                assert disk.acked or not (disk.home / "a").exists()

            crash.explore(workload, check, model="kill")

        with pytest.raises(CrashBug) as caught:
            explore(lab())
        is_first = False
        with pytest.raises(TraceChanged, match="The threads of the run did not have their turns in the order") as error:
            explore(lab(replay=ReplayId.read(caught.value.replay_id)))
        assert "Replay it again" in str(error.value)


class TestErrors:
    @pytest.mark.parametrize("_", range(2))
    def test_the_same_operation_of_a_thread_fails_again(self, lab: Lab, _: int) -> None:
        def explore(crash: Crash) -> ErrorBug:
            def write(path: Path) -> None:
                with contextlib.suppress(OSError):
                    append(path, path.name)

            def workload(home: Path) -> None:
                threads = [threading.Thread(target=write, args=(home / name,)) for name in "abc"]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            def check(disk: Disk) -> None:
                assert (disk.home / "b").read_text()

            with pytest.raises(ErrorBug) as caught:
                crash.errors(workload, check, errors=("EIO",))
            return caught.value

        first = explore(lab())
        again = explore(lab(replay=ReplayId.read(first.replay_id)))
        assert again.replay_id == first.replay_id
        assert "write b" in str(first) or "create b" in str(first)
