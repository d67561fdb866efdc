"""Clients in threads: schedules, stuck clients, async clients, and the memory stores."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, MemoryPausedStore, PausedWorkflow, samples
from pytest_wfstate.faults.race.explorer import By
from pytest_wfstate.faults.race.schedule import PROGRESS, ScheduleStep, steps_taken
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.race.stop_points import Granularity
from pytest_wfstate.faults.race.threads import Threads
from tests.unit.faults.race.racing import Client, Counter, LockedCounter, counted, explored, results


class UnlockedPausedStore(MemoryPausedStore):
    """The memory store, without its lock."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = contextlib.nullcontext()  # type: ignore[assignment]


class LookingPausedStore(MemoryPausedStore):
    """Looks for a run before it claims it, and claims it if it was there."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        found = self.load(run_id)
        return super().claim(run_id) or found


def _steps_in_memory() -> int:
    gc.collect()
    return sum(type(item) is ScheduleStep for item in gc.get_objects())


class TestSchedules:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    def test_the_same_choices_give_the_same_run(self, by: Granularity) -> None:
        def claim(store: MemoryPausedStore) -> bool:
            return store.claim("a") is not None

        choices = (0, 0, 0, 1, 1, 1, 1, 0)
        runs = []
        for _ in range(2):
            with contextlib.closing(Threads(paused_store(MemoryPausedStore), [claim, claim], by=by)) as threads:
                runs += [threads.run(choices) for _ in range(3)]
        assert all(run == runs[0] for run in runs)
        assert tuple(runs[0].choices[: len(choices)]) == choices

    def test_a_schedule_that_cannot_be_followed_diverges(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add])) as threads:
            assert not threads.run((0, 1)).diverged
            assert threads.run((0, 0, 0, 1)).diverged

    def test_each_schedule_has_a_new_shared_object(self) -> None:
        runs = explored(Counter, Counter.add, Counter.add, seen=lambda counter: counter)
        assert len({id(counter) for _, counter in runs}) == len(runs) > 1

    def test_a_lock_made_in_a_race_keeps_no_steps_in_memory(self) -> None:
        before = _steps_in_memory()
        counters = [counter for _, counter in explored(LockedCounter, LockedCounter.add, LockedCounter.add)]
        assert len(counters) > 1
        assert _steps_in_memory() == before

    def test_three_clients_interleave(self) -> None:
        client = Counter.add_in_two_lines
        runs = explored(Counter, client, client, client, preemptions=2, seen=lambda counter: counter.n)
        assert {n for _, n in runs} == {1, 2, 3}

    def test_what_a_client_raises_is_its_result(self) -> None:
        def fails(_: Any) -> None:
            raise ValueError("no")

        runs = explored(Counter, Counter.add, fails)
        for run, _ in runs:
            assert run.results[0] is None
            assert repr(run.results[1].error) == "ValueError('no')"

    def test_a_client_can_count_its_steps_and_acknowledge(self) -> None:
        def client(counter: Counter) -> list[int]:
            counts = [steps_taken()]
            counter.add()
            counts.append(steps_taken())
            progress = PROGRESS.get()
            assert progress is not None
            progress.acked.append(counts[-1])
            return counts

        ((run, _), *_) = explored(Counter, client, preemptions=0)
        (before, after) = run.results[0]
        assert (before, after) == (1, 4)  # a line, the next, that of the counter, and the third
        assert run.acked == {0: [4]}

    def test_a_client_without_steps_ends(self) -> None:
        ((run, _), *_) = explored(Counter, functools.partial(max, 1), functools.partial(max, 1), preemptions=0)
        assert [step.access.kind for step in run.steps] == ["end", "end"]

    def test_pruning_loses_no_outcome(self) -> None:
        def one(counter: LockedCounter) -> None:
            # fmt: off
            counter.m += 1; counter.lock.acquire(); counter.n += 1; counter.lock.release()  # noqa: E702 - on one line
            # fmt: on
            counter.n += 1

        def other(counter: LockedCounter) -> list[tuple[int, int]]:
            seen = [(counter.m, counter.n)]
            seen.append((counter.m, counter.n))
            return seen

        def outcomes(prune: bool) -> set[str]:
            with contextlib.closing(Threads(LockedCounter, [one, other])) as threads:
                return {repr(run.results[1]) for run in ScheduleSearch(threads, 3, prune)}

        assert outcomes(prune=True) == outcomes(prune=False) >= {"[(1, 0), (1, 1)]"}

    def test_caches_are_filled_before_the_first_schedule(self) -> None:
        @functools.cache
        def costly() -> int:
            value = 1
            value += 1
            return value

        with contextlib.closing(Threads(Counter, [lambda _: costly(), Counter.add])) as threads:
            runs = [threads.run(()) for _ in range(2)]
        assert runs[0] == runs[1]


class TestStuck:
    def test_a_deadlock_names_the_locks(self) -> None:
        class Two:
            def __init__(self) -> None:
                self.a = threading.Lock()
                self.b = threading.Lock()

            def one(self) -> None:
                with self.a:  # noqa: SIM117 - on its own line
                    with self.b:
                        pass

            def other(self) -> None:
                with self.b:  # noqa: SIM117 - on its own line
                    with self.a:
                        pass

        (stuck,) = {run.stuck for run, _ in explored(Two, Two.one, Two.other) if run.stuck}
        first = Two.__init__.__code__.co_firstlineno + 1
        one, other = Two.one.__code__.co_firstlineno + 2, Two.other.__code__.co_firstlineno + 2
        assert stuck == (
            f"deadlock: client 1 waits at test_threads.py:{one} for the lock 2, made at test_threads.py:{first + 1}, "
            f"held by client 2; client 2 waits at test_threads.py:{other} for the lock 1, made at "
            f"test_threads.py:{first}, held by client 1"
        )

    def test_an_event_that_is_never_set_is_a_deadlock(self) -> None:
        ((run, _), *_) = explored(lambda: threading.Event(), lambda event: event.wait(), preemptions=0)
        assert re.fullmatch(
            r"deadlock: client 1 waits at test_threads.py:\d+ for a notification that never comes", run.stuck
        )

    def test_a_client_that_only_sleeps_is_a_livelock(self) -> None:
        def sleepless(_: Any) -> None:
            while True:
                time.sleep(1)

        ((run, _), *_) = explored(Counter, sleepless, preemptions=0)
        line = sleepless.__code__.co_firstlineno + 2
        assert run.stuck == f"livelock: client 1 keeps retrying (sleep test_threads.py:{line})"

    def test_a_client_that_never_finishes_is_reported(self) -> None:
        def endless(counter: Counter) -> None:
            while True:
                counter.add()

        with contextlib.closing(Threads(Counter, [endless])) as threads:
            run = threads.run(())
        assert run.stuck == "client 1 made 10,000 steps without finishing"

    def test_a_hanging_client_is_reported(self) -> None:
        locks = [threading.Lock()]  # not found in a list, so not scheduled
        with locks[0]:
            ((run, _), *_) = explored(Counter, lambda _: locks[0].acquire(), preemptions=0, timeout=0.2)
        assert run.stuck.startswith("client 1 neither made a step nor finished in time. It may wait for a lock")
        assert re.search(r"It is at .*test_threads.py:\d+: .*locks\[0\].acquire\(\)", run.stuck)

    def test_a_stuck_schedule_leaves_no_thread_behind(self) -> None:
        before = set(threading.enumerate())
        ((run, _), *_) = explored(lambda: threading.Event(), lambda event: event.wait(), preemptions=0)
        assert run.stuck
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before


class TestAsyncClients:
    def test_lines_are_steps(self) -> None:
        async def client(counter: Counter) -> None:
            n = counter.n
            counter.n = n + 1

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_resuming_after_an_await_is_a_step(self) -> None:
        async def client(counter: Counter) -> None:
            counter.n = counter.n + await asyncio.sleep(0, 1)

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_to_thread_is_interleaved(self) -> None:
        async def client(counter: Counter) -> None:
            await asyncio.to_thread(counter.add_in_two_lines)

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_sleeps_take_no_time(self) -> None:
        async def patient(shared: list[str]) -> str:
            while not shared:  # noqa: ASYNC110 - people write this
                await asyncio.sleep(3600)
            return shared[0]

        async def put(shared: list[str]) -> None:
            shared.append("here")

        assert results(explored(list, patient, put)) == {("here", None)}

    def test_setup_may_be_async(self) -> None:
        async def setup() -> Counter:
            await asyncio.sleep(0)
            return LockedCounter()

        assert counted(setup, LockedCounter.add, "line", 1) == {2}

    def test_a_deadlock_of_async_clients_is_reported(self) -> None:
        async def waiting(_: Any) -> None:
            await asyncio.Event().wait()

        ((run, _), *_) = explored(Counter, waiting, preemptions=0)
        assert run.stuck.startswith("deadlock: client 1 waits")


def paused_store(kind: type[MemoryPausedStore]) -> Callable[[], MemoryPausedStore]:
    def setup() -> MemoryPausedStore:
        store = kind()
        store.save(samples.paused("a"))
        return store

    return setup


BOUNDS = [pytest.param("line", 2, id="by line"), pytest.param("opcode", 1, id="by opcode")]


class TestMemoryStores:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    @pytest.mark.parametrize(
        ("kind", "winners"), [(MemoryPausedStore, {1}), (LookingPausedStore, {1, 2})], ids=["shipped", "looking"]
    )
    def test_a_claim_has_one_winner(self, kind: type[MemoryPausedStore], winners: set[int], by: Granularity) -> None:
        def claim(store: MemoryPausedStore) -> bool:
            return store.handle().claim("a") is not None

        runs = explored(paused_store(kind), claim, claim, by=by)
        assert len(runs) > 10
        assert set(map(sum, results(runs))) == winners

    @pytest.mark.parametrize(("by", "preemptions"), BOUNDS)
    @pytest.mark.parametrize(
        ("kind", "left"), [(MemoryPausedStore, {0}), (UnlockedPausedStore, {0, 1})], ids=["locked", "unlocked"]
    )
    def test_nothing_of_a_removed_run_remains(
        self, kind: type[MemoryPausedStore], left: set[int], by: Granularity, preemptions: int
    ) -> None:
        def claim(store: MemoryPausedStore) -> None:
            store.claim("a")

        def remove(store: MemoryPausedStore) -> None:
            store.remove("a")

        setup = paused_store(kind)
        runs = explored(setup, claim, remove, by=by, preemptions=preemptions, seen=kind.recover_orphaned)
        assert {rearmed for _, rearmed in runs} == left

    @pytest.mark.parametrize(("by", "preemptions"), [*BOUNDS, pytest.param("await", 2, id="by await")])
    def test_no_mark_is_lost(self, by: By, preemptions: int) -> None:
        def marking(name: str) -> Client:
            async def mark(store: MemoryEffectStore) -> None:
                await store.mark_step_complete("t", name, samples.effect(name))

            return mark

        def marked(store: MemoryEffectStore) -> set[str]:
            return set(asyncio.run(store.load_checkpoint("t")).completed_tool_ids)  # type: ignore[union-attr]

        runs = explored(MemoryEffectStore, marking("a"), marking("b"), by=by, preemptions=preemptions, seen=marked)
        assert len(runs) > (1 if by == "await" else 10)
        assert all(both == {"a", "b"} for _, both in runs)
