"""Clients in threads: every line and opcode is a turn, who is stuck is told, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, MemoryPausedStore, samples
from pytest_wfstate.faults.race.schedule import PROGRESS, ClientFailed, Turn, turns_taken
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.race.stepping import By
from pytest_wfstate.faults.race.threads import Threads
from tests.unit.faults.race import racing
from tests.unit.faults.race.racing import Client, Counter, LockedCounter, counted, explored, results


class UnlockedPausedStore(MemoryPausedStore):
    """The memory store, without its lock."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = contextlib.nullcontext()  # type: ignore[assignment]


def _turns_in_memory() -> int:
    gc.collect()
    return sum(type(one) is Turn for one in gc.get_objects())


class TestSteps:
    def test_a_line_is_a_turn(self) -> None:
        assert counted(Counter, Counter.add_in_two_lines, "line", 1) == {1, 2}

    def test_lines_miss_what_is_lost_within_one(self) -> None:
        assert counted(Counter, Counter.add, "line", 2) == {2}

    def test_opcodes_do_not(self) -> None:
        assert counted(Counter, Counter.add, "opcode", 1) == {1, 2}

    def test_a_variable_of_a_closure_is_shared(self) -> None:
        def setup() -> Callable[[], int]:
            n = 0

            def add() -> int:
                nonlocal n
                n += 1
                return n

            return add

        found = explored(setup, lambda add: add(), lambda add: add(), by="opcode", seen=lambda add: add())
        assert {n for _, n in found} == {2, 3}

    def test_a_dictionary_that_changes_under_an_iteration(self) -> None:
        def listing(shared: dict[str, int]) -> list[str]:
            return [key for key in shared]  # noqa: C416 - it is to iterate

        def adding(shared: dict[str, int]) -> None:
            shared["c"] = 3

        found = explored(lambda: {"a": 1, "b": 2}, listing, adding, by="opcode")
        errors = {str(run.results[0].error) for run, _ in found if isinstance(run.results[0], ClientFailed)}
        assert errors == {"dictionary changed size during iteration"}

    def test_a_function_of_one_line_takes_a_turn_each_time(self) -> None:
        one_line: Client = lambda counter: (counter.n, counter.m)  # noqa: E731 - that is what is asked here
        with contextlib.closing(Threads(Counter, [one_line, one_line])) as threads:
            runs = [threads.run(()) for _ in range(2)]
        assert [[turn.access.kind for turn in run.turns] for run in runs] == [["line", "line"]] * 2

    def test_a_turn_says_where_it_was_taken(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by="opcode")) as threads:
            run = threads.run(())
        (turn, *_) = run.turns
        assert turn.access.line is not None
        assert turn.access.line.text == "self.n += 1"
        assert turn.access.path.startswith(f"racing.py:{turn.access.line.number} LOAD_ATTR")
        assert turn.access.writes == {("memory", 0, "")}

    def test_neither_the_standard_library_nor_the_lab_takes_turns(self) -> None:
        def client(shared: LockedCounter) -> str:
            shared.add()
            return Path("a/b").with_suffix(".json").name

        with contextlib.closing(Threads(LockedCounter, [client, client])) as threads:
            run = threads.run(())
        assert {turn.access.line.path for turn in run.turns if turn.access.line} == {__file__, racing.__file__}

    def test_an_installed_store_takes_turns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "site-packages" / "installed_counter"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "import threading\n"
            "_lock = threading.Lock()\n"
            "class Installed:\n"
            "    def __init__(self):\n        self.n = 0\n"
            "    def add(self):\n        n = self.n\n        self.n = n + 1\n"
            "    def add_under_lock(self):\n        with _lock:\n            self.add()\n"
        )
        monkeypatch.syspath_prepend(str(package.parent))
        from installed_counter import Installed  # type: ignore[import-not-found]

        assert counted(Installed, lambda counter: counter.add(), "line", 1) == {1, 2}
        assert counted(Installed, lambda counter: counter.add_under_lock(), "line", 1) == {2}


class TestSchedules:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    def test_the_same_choices_give_the_same_turns(self, by: By) -> None:
        def setup() -> MemoryPausedStore:
            store = MemoryPausedStore()
            store.save(samples.paused("a"))
            return store

        def claim(store: MemoryPausedStore) -> bool:
            return store.claim("a") is not None

        choices = (0, 0, 0, 1, 1, 1, 1, 0)
        runs = []
        for _ in range(2):
            with contextlib.closing(Threads(setup, [claim, claim], by=by)) as threads:
                runs += [threads.run(choices) for _ in range(3)]
        assert all(run == runs[0] for run in runs)
        assert tuple(runs[0].choices[: len(choices)]) == choices

    def test_what_cannot_be_followed_is_told(self) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add])) as threads:
            assert not threads.run((0, 1)).diverged
            assert threads.run((0, 0, 0, 1)).diverged

    def test_each_begins_anew(self) -> None:
        found = explored(Counter, Counter.add, Counter.add, seen=lambda counter: counter)
        assert len({id(counter) for _, counter in found}) == len(found) > 1

    def test_what_was_raced_for_keeps_no_turns_in_memory(self) -> None:
        """Its lock was made in the race."""
        before = _turns_in_memory()
        counters = [counter for _, counter in explored(LockedCounter, LockedCounter.add, LockedCounter.add)]
        assert len(counters) > 1
        assert _turns_in_memory() == before

    def test_three_clients_take_turns(self) -> None:
        client = Counter.add_in_two_lines
        found = explored(Counter, client, client, client, preemptions=2, seen=lambda counter: counter.n)
        assert {n for _, n in found} == {1, 2, 3}

    def test_what_a_client_raises_is_its_result(self) -> None:
        def fails(_: Any) -> None:
            raise ValueError("no")

        found = explored(Counter, Counter.add, fails)
        for run, _ in found:
            assert run.results[0] is None
            assert repr(run.results[1].error) == "ValueError('no')"
            assert 'raise ValueError("no")' in run.results[1].trace

    def test_a_client_knows_its_turns_and_what_it_promised(self) -> None:
        def client(counter: Counter) -> list[int]:
            counts = [turns_taken()]
            counter.add()
            counts.append(turns_taken())
            progress = PROGRESS.get()
            assert progress is not None
            progress.acked.append(counts[-1])
            return counts

        ((run, _), *_) = explored(Counter, client, preemptions=0)
        (before, after) = run.results[0]
        assert (before, after) == (1, 4)  # a line, the next, that of the counter, and the third
        assert run.acked == {0: [4]}

    def test_a_client_without_a_turn_has_an_end(self) -> None:
        ((run, _), *_) = explored(Counter, functools.partial(max, 1), functools.partial(max, 1), preemptions=0)
        assert [turn.access.kind for turn in run.turns] == ["end", "end"]

    def test_pruning_loses_no_outcome(self) -> None:
        def one(counter: LockedCounter) -> None:
            # fmt: off
            counter.m += 1; counter.lock.acquire(); counter.n += 1; counter.lock.release()  # noqa: E702 - one line
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

    def test_what_is_done_only_once_is_done_before(self) -> None:
        @functools.cache
        def costly() -> int:
            made = 1
            made += 1
            return made

        with contextlib.closing(Threads(Counter, [lambda _: costly(), Counter.add])) as threads:
            runs = [threads.run(()) for _ in range(2)]
        assert runs[0] == runs[1]


class TestStuck:
    def test_a_deadlock_is_told_with_who_waits_for_what(self) -> None:
        class Two:
            def __init__(self) -> None:
                self.a = threading.Lock()
                self.b = threading.Lock()

            def one(self) -> None:
                with self.a:  # noqa: SIM117 - it is on a line of its own
                    with self.b:
                        pass

            def other(self) -> None:
                with self.b:  # noqa: SIM117 - it is on a line of its own
                    with self.a:
                        pass

        (told,) = {run.stuck for run, _ in explored(Two, Two.one, Two.other) if run.stuck}
        first = Two.__init__.__code__.co_firstlineno + 1
        one, other = Two.one.__code__.co_firstlineno + 2, Two.other.__code__.co_firstlineno + 2
        assert told == (
            f"a deadlock: client 1 waits at test_threads.py:{one} for the lock 2, made at test_threads.py:{first + 1}, "
            f"which client 2 has; client 2 waits at test_threads.py:{other} for the lock 1, made at "
            f"test_threads.py:{first}, which client 1 has"
        )

    def test_who_waits_for_an_event_that_nobody_sets_is_told(self) -> None:
        ((run, _), *_) = explored(lambda: threading.Event(), lambda event: event.wait(), preemptions=0)
        assert re.fullmatch(
            r"a deadlock: client 1 waits at test_threads.py:\d+ for a notice that nobody gives", run.stuck
        )

    def test_who_sleeps_for_ever_is_told(self) -> None:
        def sleepless(_: Any) -> None:
            while True:
                time.sleep(1)

        ((run, _), *_) = explored(Counter, sleepless, preemptions=0)
        line = sleepless.__code__.co_firstlineno + 2
        assert run.stuck == f"nobody goes on: client 1 waits in sleep test_threads.py:{line}, again and again"

    def test_a_client_that_never_comes_to_its_end_is_told(self) -> None:
        def endless(counter: Counter) -> None:
            while True:
                counter.add()

        with contextlib.closing(Threads(Counter, [endless])) as threads:
            run = threads.run(())
        assert run.stuck == "client 1 took 10,000 turns and did not come to its end"

    def test_a_client_that_hangs_is_told(self) -> None:
        locks = [threading.Lock()]  # nobody finds it there, so it takes no turns
        with locks[0]:
            ((run, _), *_) = explored(Counter, lambda _: locks[0].acquire(), preemptions=0, timeout=0.2)
        assert run.stuck.startswith("client 1 did not come to its next turn, or to its end, in time, and is at ")
        assert "locks[0].acquire()" in run.stuck
        assert "a lock does if it is made by setup or by a client" in run.stuck

    def test_what_is_stuck_leaves_no_thread_behind(self) -> None:
        before = set(threading.enumerate())
        ((run, _), *_) = explored(lambda: threading.Event(), lambda event: event.wait(), preemptions=0)
        assert run.stuck
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before


class TestAsyncClients:
    def test_it_takes_turns_by_line(self) -> None:
        async def client(counter: Counter) -> None:
            n = counter.n
            counter.n = n + 1

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_it_takes_a_turn_where_it_goes_on_after_an_await(self) -> None:
        async def client(counter: Counter) -> None:
            counter.n = counter.n + await asyncio.sleep(0, 1)

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_what_it_has_a_thread_do_takes_turns(self) -> None:
        async def client(counter: Counter) -> None:
            await asyncio.to_thread(counter.add_in_two_lines)

        assert counted(Counter, client, "line", 1) == {1, 2}

    def test_it_sleeps_without_waiting(self) -> None:
        async def patient(shared: list[str]) -> str:
            while not shared:  # noqa: ASYNC110 - it is what people write
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

    def test_a_deadlock_of_async_clients_is_told(self) -> None:
        async def waiting(_: Any) -> None:
            await asyncio.Event().wait()

        ((run, _), *_) = explored(Counter, waiting, preemptions=0)
        assert run.stuck.startswith("a deadlock: client 1 waits")


def paused_store(kind: type[MemoryPausedStore]) -> Callable[[], MemoryPausedStore]:
    def setup() -> MemoryPausedStore:
        store = kind()
        store.save(samples.paused("a"))
        return store

    return setup


BOUNDS = [pytest.param("line", 2, id="by line"), pytest.param("opcode", 1, id="by opcode")]


class TestMemoryStores:
    @pytest.mark.parametrize(("by", "preemptions"), BOUNDS)
    def test_a_claim_has_one_winner(self, by: By, preemptions: int) -> None:
        def claim(store: MemoryPausedStore) -> bool:
            return store.handle().claim("a") is not None

        found = explored(paused_store(MemoryPausedStore), claim, claim, by=by, preemptions=preemptions)
        assert len(found) > 10
        assert results(found) == {(True, False), (False, True)}

    @pytest.mark.parametrize(("by", "preemptions"), BOUNDS)
    @pytest.mark.parametrize(
        ("kind", "left"), [(MemoryPausedStore, {0}), (UnlockedPausedStore, {0, 1})], ids=["locked", "unlocked"]
    )
    def test_nothing_is_left_of_a_removed_run(
        self, kind: type[MemoryPausedStore], left: set[int], by: By, preemptions: int
    ) -> None:
        def claim(store: MemoryPausedStore) -> None:
            store.claim("a")

        def remove(store: MemoryPausedStore) -> None:
            store.remove("a")

        found = explored(
            paused_store(kind),
            claim,
            remove,
            by=by,
            preemptions=preemptions,
            seen=lambda store: store.recover_orphaned(),
        )
        assert {rearmed for _, rearmed in found} == left

    @pytest.mark.parametrize(("by", "preemptions"), BOUNDS)
    def test_no_mark_is_lost(self, by: By, preemptions: int) -> None:
        def marking(name: str) -> Client:
            async def mark(store: MemoryEffectStore) -> None:
                await store.mark_step_complete("t", name, samples.effect(name))

            return mark

        def marked(store: MemoryEffectStore) -> set[str]:
            return set(asyncio.run(store.load_checkpoint("t")).completed_tool_ids)  # type: ignore[union-attr]

        found = explored(MemoryEffectStore, marking("a"), marking("b"), by=by, preemptions=preemptions, seen=marked)
        assert len(found) > 10
        assert all(both == {"a", "b"} for _, both in found)


@pytest.fixture
def tracing() -> Iterator[list[str]]:
    """What a trace function has heard, of this thread and of those that are started."""
    heard: list[str] = []

    def trace(frame: Any, event: str, _: object) -> Any:
        if frame.f_code is Counter.add.__code__:
            heard.append(event)
        return trace

    before = sys.gettrace(), threading.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    yield heard
    assert sys.gettrace() is trace
    assert threading.gettrace() is trace
    sys.settrace(before[0])
    threading.settrace(before[1])


class TestLeftAsItWas:
    @pytest.mark.parametrize("by", ["line", "opcode"])
    def test_a_trace_function_hears_all_that_it_would(self, tracing: list[str], by: By) -> None:
        with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by=by)) as threads:
            threads.run(())
            tracing.clear()
            threads.run(())
        assert tracing == ["call", "line", "return"] * 2

    def test_all_that_was_replaced_is_put_back(self) -> None:
        def replaced() -> list[Any]:
            return [
                *(threading.Lock, threading.RLock, threading._allocate_lock),  # type: ignore[attr-defined]
                *(time.sleep, time.monotonic, queue.SimpleQueue, fcntl.flock, fcntl.lockf),
                *(threading.Thread.start, ThreadPoolExecutor.submit, asyncio.BaseEventLoop.run_in_executor),
            ]

        before = replaced()
        threads = Threads(Counter, [Counter.add])
        threads.run(())
        assert replaced() != before
        threads.close()
        assert replaced() == before

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
    def test_no_tool_is_kept(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        before = [monitoring.get_tool(number) for number in range(6)]
        with contextlib.closing(Threads(Counter, [Counter.add])) as threads:
            threads.run(())
            assert "wfstate" in [monitoring.get_tool(number) for number in range(6)]
        assert [monitoring.get_tool(number) for number in range(6)] == before

    @pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
    def test_coverage_sees_the_lines_of_clients(self, tmp_path: Path, core: str) -> None:
        pytest.importorskip("coverage", reason="coverage is not installed")
        if core == "sysmon" and sys.version_info < (3, 12):
            pytest.skip("sys.monitoring came with Python 3.12")
        (tmp_path / "counter.py").write_text(
            "import contextlib\n"
            "from pytest_wfstate.faults.race.threads import Threads\n"
            "class Counter:\n"
            "    n = 0\n"
            "    def add(self):\n"
            "        self.n += 1\n"
            "for by in ('line', 'opcode'):\n"
            "    with contextlib.closing(Threads(Counter, [Counter.add, Counter.add], by=by)) as threads:\n"
            "        threads.run(())\n"
            "print('after')\n"
        )
        script = (
            "import coverage, sys\n"
            "measured = coverage.Coverage(data_file=None, include=['*/counter.py'])\n"
            "measured.start()\n"
            "import counter\n"
            "measured.stop()\n"
            "print(measured.analysis2('counter.py')[3])\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"COVERAGE_CORE": core, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            check=False,
        )
        assert (done.stderr, done.stdout) == ("", "after\n[]\n")
