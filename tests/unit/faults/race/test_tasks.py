"""Clients as tasks of one event loop: they switch at awaits, and never wait for time to pass."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_wfstate.faults.race.schedule import PROGRESS, ClientFailed, ScheduleRun, steps_taken
from pytest_wfstate.faults.race.tasks import Tasks
from tests.unit.faults.race import racing
from tests.unit.faults.race.racing import CLOCKS, Client, results

explored = functools.partial(racing.explored, by="await", preemptions=2)


class Claims:
    """Should let one worker own a run."""

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


def run_once(setup: Callable[[], Any], clients: list[Client], timeout: float = 30) -> ScheduleRun:
    with contextlib.closing(Tasks(setup, clients, timeout)) as tasks:
        return tasks.run(())


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

    def test_only_awaits_are_steps(self) -> None:
        async def client(shared: list[int]) -> None:
            n = len(shared)
            shared.append(n)

        runs = explored(list, client, client)
        assert [len(run.steps) for run, _ in runs] == [2, 2]
        assert {tuple(shared) for _, shared in runs} == {(0, 1)}

    def test_tasks_of_a_client_are_interleaved(self) -> None:
        async def client(claims: Claims) -> bool:
            return await asyncio.wait_for(asyncio.create_task(claims.claim("a")), 10)

        assert results(explored(Claims, client, client, preemptions=1)) == ONE_WINNER | TWO_WINNERS

    def test_the_work_of_a_thread_is_one_step(self) -> None:
        async def client(shared: list[int]) -> None:
            n = await asyncio.to_thread(len, shared)
            await asyncio.to_thread(shared.append, n)

        runs = explored(list, client, client, preemptions=1)
        assert {tuple(shared) for _, shared in runs} == {(0, 1), (0, 0)}
        assert {step.access.kind for run, _ in runs for step in run.steps} == {"start", "thread", "await"}

    def test_an_error_in_a_thread_is_raised(self) -> None:
        async def client(_: Any) -> None:
            await asyncio.to_thread(int, "x")

        ((run, _), *_) = explored(list, client, preemptions=0)
        assert isinstance(run.results[0].error, ValueError)

    def test_a_step_has_the_line_where_its_client_resumes(self) -> None:
        with contextlib.closing(Tasks(Claims, [claiming("claim", "a")])) as tasks:
            run = tasks.run(())
        assert [step.access.kind for step in run.steps] == ["start", "await"]
        line = run.steps[1].access.line
        assert line is not None
        assert line.text == "await asyncio.sleep(0)"
        assert run.steps[1].access.path == f"test_tasks.py:{line.number}"


class TestSchedules:
    def test_the_same_choices_give_the_same_run(self) -> None:
        clients = [claiming("claim_under_lock", "a"), claiming("claim_under_lock", "b")]
        choices = (0, 1, 0)
        with contextlib.closing(Tasks(Claims, clients)) as tasks:
            runs = [tasks.run(choices) for _ in range(3)]
        assert all(run == runs[0] for run in runs)
        assert tuple(runs[0].choices[:3]) == choices
        assert not runs[0].diverged

    def test_a_schedule_that_cannot_be_followed_diverges(self) -> None:
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

    def test_a_client_can_count_its_steps_and_acknowledge(self) -> None:
        async def client(claims: Claims) -> int:
            await claims.claim("a")
            progress = PROGRESS.get()
            assert progress is not None
            progress.acked.append("a")
            return steps_taken()

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

    def test_an_error_in_setup_is_raised(self) -> None:
        def fails() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            run_once(fails, [claiming("claim", "a")])

    def test_it_works_under_a_running_loop(self) -> None:
        async def test() -> set[tuple[Any, ...]]:
            return results(explored(Claims, claiming("claim_at_once", "a"), claiming("claim_at_once", "b")))

        assert asyncio.run(test()) == ONE_WINNER


class TestTime:
    def test_a_sleeping_client_lets_others_run(self) -> None:
        async def patient(shared: list[str]) -> str:
            while not shared:  # noqa: ASYNC110 - people write this
                await asyncio.sleep(3600)
            return shared[0]

        async def put(shared: list[str]) -> None:
            await asyncio.sleep(3600)
            shared.append("here")

        assert results(explored(list, patient, put)) == {("here", None)}

    def test_clients_that_only_sleep_are_stuck(self) -> None:
        async def waiting(shared: list[str]) -> None:
            while not shared:  # noqa: ASYNC110 - people write this
                await asyncio.sleep(3600)

        line = waiting.__code__.co_firstlineno + 2
        each = [f"client {number} keeps retrying (sleep test_tasks.py:{line})" for number in (1, 2)]
        assert run_once(list, [waiting, waiting]).stuck == f"livelock: {'; '.join(each)}"

    @pytest.mark.parametrize("pause", [0.5, 0.0001, 0])
    def test_a_client_can_poll_any_clock_until_a_deadline(self, pause: float) -> None:
        async def patient(shared: list[str]) -> int:
            late = 0
            for look in (*CLOCKS, asyncio.get_running_loop().time):
                end = look() + 30
                while not shared and look() < end:  # noqa: ASYNC110 - people write this
                    await asyncio.sleep(pause)
                late += look() >= end
            return late

        assert results(explored(list, patient, preemptions=0)) == {(len(CLOCKS) + 1,)}

    def test_a_client_can_poll_in_a_thread(self) -> None:
        def poll(shared: list[str]) -> int:
            end, times = time.monotonic() + 1800, 0
            while not shared and time.monotonic() < end:
                time.sleep(600)
                threading.Event().wait(0.001)
                times += 1
            return times

        async def patient(shared: list[str]) -> int:
            return await asyncio.to_thread(poll, shared)

        assert results(explored(list, patient, preemptions=0)) == {(3,)}

    def test_a_sleep_may_end_at_any_time(self) -> None:
        async def sleeping(shared: list[str]) -> None:
            await asyncio.sleep(1)
            shared.append("slept")

        async def busy(shared: list[str]) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                shared.append("busy")

        runs = explored(list, sleeping, busy)
        assert {shared.index("slept") for _, shared in runs} == {0, 1, 2, 3}

    def test_a_timeout_expires_when_no_client_can_run(self) -> None:
        async def waiting(_: Any) -> str:
            try:
                async with asyncio.timeout(3600):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "too late"
            return "in time"

        assert results(explored(Claims, waiting, claiming("claim_under_lock", "b"))) == {("too late", True)}


class TestStuck:
    def test_a_deadlock_names_the_lines(self) -> None:
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

        (stuck,) = {run.stuck for run, _ in explored(Two, Two.one, Two.other) if run.stuck}
        one, other = Two.one.__code__.co_firstlineno + 3, Two.other.__code__.co_firstlineno + 3
        assert stuck == (
            f"deadlock: client 1 waits at test_tasks.py:{one}: async with self.b:; "
            f"client 2 waits at test_tasks.py:{other}: async with self.a:"
        )

    def test_a_client_that_never_finishes_is_reported(self) -> None:
        async def endless(_: Any) -> None:
            while True:  # noqa: ASYNC110 - people write this
                await asyncio.sleep(0)

        assert run_once(Claims, [endless]).stuck == "client 1 made 10,000 steps without finishing"

    def test_a_hanging_client_is_reported_and_ended(self) -> None:
        async def hanging(_: Any) -> None:
            while True:
                pass

        before = set(threading.enumerate())
        run = run_once(Claims, [hanging], 0.2)
        assert re.match(
            r"client 1 neither reached an await nor finished in time. It is at test_tasks.py:\d+: ", run.stuck
        )
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert set(threading.enumerate()) <= before

    def test_a_setup_that_never_finishes_is_reported(self) -> None:
        async def setup() -> None:
            await asyncio.Event().wait()

        stuck = run_once(setup, [claiming("claim", "a")]).stuck
        assert stuck == "setup does not finish: it waits for something that never happens"

    def test_work_in_another_thread_is_noted(self) -> None:
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
        assert run.unseen == ["work handed to another thread"]
