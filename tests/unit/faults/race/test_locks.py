"""Scheduled locks: made in a race, or before it and kept by a module, class or closure."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from typing import Any

import pytest

from pytest_wfstate.faults.race.stop_points import Granularity
from pytest_wfstate.faults.race.threads import Threads
from tests.unit.faults.race.racing import Counter, LockedCounter, counted, explored, results


class TestLocks:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    @pytest.mark.parametrize("lock", ["Lock", "RLock", "Semaphore", "Condition"])
    def test_a_lock_prevents_a_lost_update(self, lock: str, by: Granularity) -> None:
        setup = functools.partial(LockedCounter, lambda: getattr(threading, lock)())
        runs = explored(setup, LockedCounter.add, LockedCounter.add, by=by, seen=lambda counter: counter.n)
        assert {n for _, n in runs} == {2}
        assert not any(run.diverged or run.stuck or run.unseen for run, _ in runs)
        assert any(step.blocked for run, _ in runs for step in run.steps)

    def test_a_step_records_the_locks_that_its_client_holds(self) -> None:
        with contextlib.closing(Threads(LockedCounter, [LockedCounter.add])) as threads:
            run = threads.run(())
        number = 1
        assert [(step.access.kind, step.access.held) for step in run.steps] == [
            ("line", frozenset()),
            ("lock", frozenset()),
            *[("line", frozenset({(number, True)}))] * 4,  # one more for the end of `with`
            ("unlock", frozenset({(number, True)})),
        ]
        assert run.steps[1].access.writes == run.steps[-1].access.writes == {("lock", number, ""), ("memory", 0, "")}

    def test_a_reentrant_lock_can_be_acquired_again(self) -> None:
        class Reentrant(LockedCounter):
            def __init__(self) -> None:
                super().__init__(threading.RLock)

            def twice(self) -> None:
                with self.lock:
                    self.add()
                    self.add()

        runs = explored(Reentrant, Reentrant.twice, Reentrant.add, preemptions=2, seen=lambda counter: counter.n)
        assert {n for _, n in runs} == {3}

    def test_trying_a_lock_can_fail(self) -> None:
        def attempt(counter: LockedCounter) -> bool:
            if not counter.lock.acquire(blocking=False):
                return False
            counter.add_in_two_lines()
            counter.lock.release()
            return True

        assert results(explored(LockedCounter, attempt, attempt)) == {(True, True), (True, False), (False, True)}

    def test_a_wait_with_a_limit_times_out_at_once(self) -> None:
        def hold(lock: Any) -> bool:
            lock.acquire()
            return True

        def wait(lock: Any) -> bool:
            return bool(lock.acquire(timeout=3600))

        ((run, _), *_) = explored(lambda: threading.Lock(), hold, wait, preemptions=0)
        assert run.results == {0: True, 1: False}

    def test_outside_a_race_locks_are_real(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add])) as threads:
            threads.run(())
            lock, rlock = threading.Lock(), threading.RLock()
        assert type(lock) is type(threading.Lock())
        assert type(rlock) is type(threading.RLock())


_module_lock = threading.Lock()


class ClassLocked(Counter):
    """Counts under a lock made before the race, which all counters share."""

    lock = threading.Lock()
    rlock = threading.RLock()
    condition = threading.Condition()

    def add_under(self, lock: Any) -> None:
        with lock, lock if lock is self.rlock else contextlib.nullcontext():
            self.add_in_two_lines()


class TestModuleLocks:
    @pytest.mark.parametrize("name", ["lock", "rlock", "condition"])
    def test_a_lock_of_a_class_is_scheduled(self, name: str) -> None:
        def client(counter: ClassLocked) -> None:
            counter.add_under(getattr(counter, name))

        before = getattr(ClassLocked, name)
        assert counted(ClassLocked, client, "line", 1) == {2}
        assert getattr(ClassLocked, name) is before

    def test_a_lock_of_a_module_is_scheduled(self) -> None:
        def client(counter: ClassLocked) -> None:
            counter.add_under(_module_lock)

        assert counted(ClassLocked, client, "line", 1) == {2}

    def test_a_lock_of_a_closure_is_scheduled(self) -> None:
        lock = threading.Lock()

        def client(counter: ClassLocked) -> None:
            counter.add_under(lock)

        assert counted(ClassLocked, client, "line", 1) == {2}

    def test_a_closure_variable_without_a_value_is_ignored(self) -> None:
        def client(counter: Counter) -> int:
            counter.add()
            return counter.n if counter.n else unassigned

        assert counted(Counter, client, "line", 0) == {2}
        unassigned = 0

    def test_a_deadlock_names_it(self) -> None:
        def client(_: Any) -> None:
            ClassLocked.lock.acquire()
            ClassLocked.lock.acquire()

        ((run, _), *_) = explored(Counter, client, preemptions=0)
        assert re.search(r"for the lock \S*test_locks\.ClassLocked\.lock, held by client 1", run.stuck)
