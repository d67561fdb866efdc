"""Clients in threads take turns wherever they would wait; where they cannot, that is told."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import queue
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, as_sync
from pytest_wfstate.faults.race.stepping import By
from pytest_wfstate.faults.race.threads import Threads
from tests.unit.faults.race.racing import Counter, LockedCounter, counted, explored, results


class TestLocks:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    @pytest.mark.parametrize("lock", ["Lock", "RLock", "Semaphore", "Condition"])
    def test_a_lock_prevents_a_lost_update(self, lock: str, by: By) -> None:
        setup = functools.partial(LockedCounter, lambda: getattr(threading, lock)())
        found = explored(
            setup, LockedCounter.add, LockedCounter.add, by=by, preemptions=1, seen=lambda counter: counter.n
        )
        assert {n for _, n in found} == {2}
        assert not any(run.diverged or run.stuck or run.unseen for run, _ in found)
        assert any(turn.blocked for run, _ in found for turn in run.turns)

    def test_a_turn_tells_the_locks_that_its_client_has(self) -> None:
        with contextlib.closing(Threads(LockedCounter, [LockedCounter.add])) as threads:
            run = threads.run(())
        number = 1
        assert [(turn.access.kind, turn.access.held) for turn in run.turns] == [
            ("line", frozenset()),
            ("lock", frozenset()),
            *[("line", frozenset({(number, True)}))] * 4,  # one more for the end of `with`
            ("unlock", frozenset({(number, True)})),
        ]
        assert run.turns[1].access.writes == run.turns[-1].access.writes == {("lock", number, ""), ("memory", 0, "")}

    def test_a_reentrant_lock_is_given_again_to_who_has_it(self) -> None:
        class Reentrant(LockedCounter):
            def __init__(self) -> None:
                super().__init__(threading.RLock)

            def twice(self) -> None:
                with self.lock:
                    self.add()
                    self.add()

        found = explored(Reentrant, Reentrant.twice, Reentrant.add, preemptions=2, seen=lambda counter: counter.n)
        assert {n for _, n in found} == {3}

    def test_a_lock_that_is_only_tried_is_refused(self) -> None:
        def attempt(counter: LockedCounter) -> bool:
            if not counter.lock.acquire(blocking=False):
                return False
            counter.add_in_two_lines()
            counter.lock.release()
            return True

        assert results(explored(LockedCounter, attempt, attempt)) == {(True, True), (True, False), (False, True)}

    def test_time_goes_by_for_who_waits_with_a_limit(self) -> None:
        def hold(lock: Any) -> bool:
            lock.acquire()
            return True

        def wait(lock: Any) -> bool:
            return bool(lock.acquire(timeout=3600))

        began = time.monotonic()
        ((run, _), *_) = explored(lambda: threading.Lock(), hold, wait, preemptions=0)
        assert run.results == {0: True, 1: False}
        assert time.monotonic() - began < 60

    def test_what_is_no_lock_of_a_race_is_a_real_one(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add])) as threads:
            threads.run(())
            lock, rlock = threading.Lock(), threading.RLock()
        assert type(lock) is type(threading.Lock())
        assert type(rlock) is type(threading.RLock())


_of_module = threading.Lock()


class ClassLocked(Counter):
    """Counts under a lock that all counters share, since before the race."""

    lock = threading.Lock()
    rlock = threading.RLock()
    condition = threading.Condition()

    def add_under(self, lock: Any) -> None:
        with lock, lock if lock is self.rlock else contextlib.nullcontext():
            self.add_in_two_lines()


class TestOldLocks:
    @pytest.mark.parametrize("name", ["lock", "rlock", "condition"])
    def test_one_of_a_class_takes_turns(self, name: str) -> None:
        def client(counter: ClassLocked) -> None:
            counter.add_under(getattr(counter, name))

        before = getattr(ClassLocked, name)
        assert counted(ClassLocked, client, "line", 1) == {2}
        assert getattr(ClassLocked, name) is before

    def test_one_of_a_module_takes_turns(self) -> None:
        def client(counter: ClassLocked) -> None:
            counter.add_under(_of_module)

        assert counted(ClassLocked, client, "line", 1) == {2}

    def test_one_of_a_closure_takes_turns(self) -> None:
        lock = threading.Lock()

        def client(counter: ClassLocked) -> None:
            counter.add_under(lock)

        assert counted(ClassLocked, client, "line", 1) == {2}

    def test_it_is_named_in_a_deadlock(self) -> None:
        def client(_: Any) -> None:
            ClassLocked.lock.acquire()
            ClassLocked.lock.acquire()

        ((run, _), *_) = explored(Counter, client, preemptions=0)
        assert re.search(r"for the lock \S*test_blocking\.ClassLocked\.lock, which client 1 has", run.stuck)


class TestHandovers:
    def test_an_event(self) -> None:
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

        found = explored(Box, Box.get, Box.put)
        assert results(found) == {("here", None)}
        assert not any(run.stuck or run.diverged for run, _ in found)

    def test_a_condition(self) -> None:
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
    def test_a_queue(self, kind: str) -> None:
        def get(shared: Any) -> Any:
            return shared.get()

        def put(shared: Any) -> None:
            shared.put("here")

        assert results(explored(lambda: getattr(queue, kind)(), get, put)) == {("here", None)}

    def test_a_limit_to_waiting_runs_out_when_nobody_goes_on(self) -> None:
        def get(shared: Any) -> Any:
            with contextlib.suppress(queue.Empty):
                return shared.get(timeout=3600)
            return "nothing"

        assert results(explored(lambda: queue.Queue(), get, get)) == {("nothing", "nothing")}

    def test_who_sleeps_lets_others_go_on(self) -> None:
        def patient(shared: list[str]) -> str:
            while not shared:
                time.sleep(3600)
            return shared[0]

        assert results(explored(list, patient, lambda shared: shared.append("here"))) == {("here", None)}


class TestUnseen:
    def test_a_thread_of_a_client(self) -> None:
        def client(counter: Counter) -> None:
            thread = threading.Thread(target=counter.add)
            thread.start()
            thread.join()

        ((run, _), *_) = explored(Counter, client, preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]

    def test_a_thread_of_the_shared_object(self) -> None:
        def setup() -> queue.Queue[int]:
            made: queue.Queue[int] = queue.Queue()
            threading.Thread(target=lambda: made.put(1)).start()
            return made

        ((run, _), *_) = explored(setup, lambda shared: shared.get(), preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]

    def test_a_pool(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()  # its thread is there
            ((run, _), *_) = explored(Counter, lambda counter: pool.submit(counter.add).result(), preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]

    def test_a_pool_that_a_client_makes(self) -> None:
        def client(counter: Counter) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(counter.add).result()

        before = set(threading.enumerate())
        ((run, _), *_) = explored(Counter, client, preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before

    def test_an_event_loop_in_another_thread(self) -> None:
        store = as_sync(MemoryEffectStore())
        store.load_checkpoint("t")
        ((run, _), *_) = explored(Counter, lambda _: store.load_checkpoint("t"), preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]

    @pytest.mark.parametrize("lock", ["flock", "lockf"])
    def test_a_lock_on_a_file_fools_nobody(self, tmp_path: Path, lock: str) -> None:
        def client(path: Path) -> None:
            with open(path / "lock", "w") as file:
                getattr(fcntl, lock)(file, fcntl.LOCK_EX)
                path.exists()

        found = explored(lambda: tmp_path, client, client)
        assert all("a lock on a file" in run.unseen[0] for run, _ in found)
