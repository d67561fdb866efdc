"""Clients as tasks of one event loop: they take turns at awaits, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate import MemoryEffectStore, samples
from pytest_wfstate.faults.race.schedule import PROGRESS, ClientFailed, ScheduleRun, turns_taken
from pytest_wfstate.faults.race.search import ScheduleSearch
from pytest_wfstate.faults.race.tasks import Tasks

Client = Callable[[Any], Any]


def explored(
    setup: Callable[[], Any],
    *clients: Client,
    preemptions: int = 2,
    timeout: float = 20,
    seen: Callable[[Any], Any] = lambda shared: shared,
) -> list[tuple[ScheduleRun, Any]]:
    """Run all schedules; give each with what is to be seen of the shared object then."""
    with contextlib.closing(Tasks(setup, clients, timeout)) as tasks:
        return [(run, seen(tasks.shared)) for run in ScheduleSearch(tasks, preemptions)]


def results(found: list[tuple[ScheduleRun, Any]]) -> set[tuple[Any, ...]]:
    assert not any(run.stuck or run.diverged or run.unseen for run, _ in found)
    return {tuple(run.results[client] for client in sorted(run.results)) for run, _ in found}


class Claims:
    """Gives a run to one worker, or so it thinks."""

    def __init__(self) -> None:
        self.owner = ""
        self.lock = asyncio.Lock()

    async def claim(self, owner: str) -> bool:
        if self.owner:
            return False
        await asyncio.sleep(0)
        self.owner = owner
        return True

    async def claim_at_once(self, owner: str) -> bool:
        if self.owner:
            return False
        self.owner = owner
        await asyncio.sleep(0)
        return True

    async def claim_under_lock(self, owner: str) -> bool:
        async with self.lock:
            return await self.claim(owner)

    async def claim_after_a_while(self, owner: str) -> bool:
        if self.owner:
            return False
        await asyncio.sleep(3600)
        self.owner = owner
        return True


def claiming(method: str, name: str) -> Client:
    async def client(claims: Claims) -> bool:
        return bool(await getattr(claims, method)(name))

    return client


ONE_WINNER = {(True, False), (False, True)}
TWO_WINNERS = {(True, True)}


class TestAwaits:
    @pytest.mark.parametrize(
        ("method", "expected"),
        [
            ("claim", ONE_WINNER | TWO_WINNERS),
            ("claim_after_a_while", ONE_WINNER | TWO_WINNERS),
            ("claim_at_once", ONE_WINNER),
            ("claim_under_lock", ONE_WINNER),
        ],
    )
    def test_an_await_between_check_and_set_is_found(self, method: str, expected: set[Any]) -> None:
        assert results(explored(Claims, claiming(method, "a"), claiming(method, "b"))) == expected

    def test_no_turn_is_taken_where_nothing_is_awaited(self) -> None:
        async def client(shared: list[int]) -> None:
            n = len(shared)
            shared.append(n)

        found = explored(list, client, client)
        assert [len(run.turns) for run, _ in found] == [2, 2]
        assert {tuple(shared) for _, shared in found} == {(0, 1)}

    def test_a_task_of_a_client_takes_its_turns(self) -> None:
        async def client(claims: Claims) -> bool:
            return await asyncio.wait_for(asyncio.create_task(claims.claim("a")), 10)

        assert results(explored(Claims, client, client, preemptions=1)) == ONE_WINNER | TWO_WINNERS

    def test_the_work_of_a_thread_is_a_turn_of_its_own(self) -> None:
        async def client(shared: list[int]) -> None:
            n = await asyncio.to_thread(len, shared)
            await asyncio.to_thread(shared.append, n)

        found = explored(list, client, client, preemptions=1)
        assert {tuple(shared) for _, shared in found} == {(0, 1), (0, 0)}
        assert {turn.access.kind for run, _ in found for turn in run.turns} == {"start", "thread", "await"}

    def test_what_a_thread_raises_is_raised(self) -> None:
        async def client(_: Any) -> None:
            await asyncio.to_thread(int, "x")

        ((run, _), *_) = explored(list, client, preemptions=0)
        assert isinstance(run.results[0].error, ValueError)

    def test_a_turn_says_where_a_client_goes_on(self) -> None:
        with contextlib.closing(Tasks(Claims, [claiming("claim", "a")])) as tasks:
            run = tasks.run(())
        assert [turn.access.kind for turn in run.turns] == ["start", "await"]
        line = run.turns[1].access.line
        assert line is not None
        assert line.text == "await asyncio.sleep(0)"
        assert run.turns[1].access.path == f"test_tasks.py:{line.number}"


class TestSchedules:
    def test_the_same_choices_give_the_same_turns(self) -> None:
        clients = [claiming("claim_under_lock", "a"), claiming("claim_under_lock", "b")]
        choices = (0, 1, 0)
        with contextlib.closing(Tasks(Claims, clients)) as tasks:
            runs = [tasks.run(choices) for _ in range(3)]
        assert all(run == runs[0] for run in runs)
        assert tuple(runs[0].choices[:3]) == choices
        assert not runs[0].diverged

    def test_what_cannot_be_followed_is_told(self) -> None:
        with contextlib.closing(Tasks(Claims, [claiming("claim", "a"), claiming("claim", "b")])) as tasks:
            assert tasks.run((0, 0, 0)).diverged

    def test_what_a_client_raises_is_its_result(self) -> None:
        async def fails(_: Any) -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        for run, _ in explored(Claims, fails, claiming("claim", "b")):
            assert isinstance(run.results[0], ClientFailed)
            assert repr(run.results[0].error) == "ValueError('no')"
            assert run.results[1] is True

    def test_a_client_knows_its_turns_and_what_it_promised(self) -> None:
        async def client(claims: Claims) -> int:
            await claims.claim("a")
            progress = PROGRESS.get()
            assert progress is not None
            progress.acked.append("a")
            return turns_taken()

        ((run, _), *_) = explored(Claims, client, preemptions=0)
        assert run.results == {0: 2}
        assert run.acked == {0: ["a"]}

    def test_setup_may_be_async_and_leave_a_task_behind(self) -> None:
        async def setup() -> asyncio.Queue[asyncio.Future[str]]:
            asked: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

            async def answer() -> None:
                while True:
                    (await asked.get()).set_result("here")

            asked.answering = asyncio.create_task(answer())  # type: ignore[attr-defined]
            return asked

        async def ask(asked: asyncio.Queue[asyncio.Future[str]]) -> str:
            answer = asyncio.get_running_loop().create_future()
            await asked.put(answer)
            return str(await answer)

        assert results(explored(setup, ask, ask)) == {("here", "here")}

    def test_what_setup_raises_is_raised(self) -> None:
        def fails() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            Tasks(fails, [claiming("claim", "a")]).run(())

    def test_it_works_under_a_running_loop(self) -> None:
        async def test() -> set[tuple[Any, ...]]:
            return results(explored(Claims, claiming("claim_at_once", "a"), claiming("claim_at_once", "b")))

        assert asyncio.run(test()) == ONE_WINNER


class TestTime:
    def test_who_sleeps_lets_others_go_on(self) -> None:
        async def patient(shared: list[str]) -> str:
            while not shared:  # noqa: ASYNC110 - it is what people write
                await asyncio.sleep(3600)
            return shared[0]

        async def put(shared: list[str]) -> None:
            await asyncio.sleep(3600)
            shared.append("here")

        assert results(explored(list, patient, put)) == {("here", None)}

    def test_who_sleeps_again_and_again_is_told(self) -> None:
        async def waiting(shared: list[str]) -> None:
            while not shared:  # noqa: ASYNC110 - it is what people write
                await asyncio.sleep(3600)

        assert Tasks(list, [waiting, waiting]).run(()).stuck.endswith("turns and did not come to its end")

    def test_a_sleep_may_end_at_any_time(self) -> None:
        async def sleeping(shared: list[str]) -> None:
            await asyncio.sleep(1)
            shared.append("slept")

        async def busy(shared: list[str]) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                shared.append("busy")

        found = explored(list, sleeping, busy)
        assert {shared.index("slept") for _, shared in found} == {0, 1, 2, 3}

    def test_a_limit_runs_out_when_nobody_goes_on(self) -> None:
        async def waiting(_: Any) -> str:
            try:
                async with asyncio.timeout(3600):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "too late"
            return "in time"

        assert results(explored(Claims, waiting, claiming("claim_under_lock", "b"))) == {("too late", True)}


class TestStuck:
    def test_a_deadlock_is_told_with_who_waits_where(self) -> None:
        class Two:
            def __init__(self) -> None:
                self.a = asyncio.Lock()
                self.b = asyncio.Lock()

            async def one(self) -> None:
                async with self.a:
                    await asyncio.sleep(0)
                    async with self.b:
                        pass

            async def other(self) -> None:
                async with self.b:
                    await asyncio.sleep(0)
                    async with self.a:
                        pass

        (told,) = {run.stuck for run, _ in explored(Two, Two.one, Two.other) if run.stuck}
        one, other = Two.one.__code__.co_firstlineno + 3, Two.other.__code__.co_firstlineno + 3
        assert told == (
            f"a deadlock: client 1 waits at test_tasks.py:{one}: async with self.b:; "
            f"client 2 waits at test_tasks.py:{other}: async with self.a:"
        )

    def test_a_client_that_never_comes_to_its_end_is_told(self) -> None:
        async def endless(_: Any) -> None:
            while True:  # noqa: ASYNC110 - it is what people write
                await asyncio.sleep(0)

        assert Tasks(Claims, [endless]).run(()).stuck == "client 1 took 10,000 turns and did not come to its end"

    def test_a_client_that_hangs_is_told_and_ended(self) -> None:
        async def hanging(_: Any) -> None:
            while True:
                pass

        before = set(threading.enumerate())
        run = Tasks(Claims, [hanging], 0.2).run(())
        assert re.match(
            r"client 1 did not come to its next await, or to its end, in time, and is at test_tasks.py:\d+: ", run.stuck
        )
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before

    def test_a_setup_that_waits_for_nobody_is_told(self) -> None:
        async def setup() -> None:
            await asyncio.Event().wait()

        told = Tasks(setup, [claiming("claim", "a")]).run(()).stuck
        assert told == "setup does not come to its end: it waits for what nobody does"

    def test_work_in_another_thread_is_told(self) -> None:
        async def client(_: Any) -> None:
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            release = threading.Event()

            def work() -> None:
                release.wait(10)
                with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                    loop.call_soon_threadsafe(done.set)

            threading.Thread(target=work).start()
            try:
                await done.wait()
            finally:
                release.set()

        ((run, _), *_) = explored(Claims, client, preemptions=0)
        assert run.unseen == ["work that is handed to another thread"]


class TestMemoryStores:
    def test_no_mark_is_lost(self) -> None:
        def marking(name: str) -> Client:
            async def mark(store: MemoryEffectStore) -> None:
                await store.mark_step_complete("t", name, samples.effect(name))

            return mark

        async def marked(store: MemoryEffectStore) -> set[str]:
            found = await store.load_checkpoint("t")
            assert found is not None
            return found.completed_tool_ids

        found = explored(MemoryEffectStore, marking("a"), marking("b"), seen=lambda store: asyncio.run(marked(store)))
        assert all(both == {"a", "b"} for _, both in found)
