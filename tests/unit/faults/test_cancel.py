"""Cancellations visit every await, hold what goes on, and leave nothing behind themselves."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_wfstate.faults.cancel import Cancellation

BEGINS, DONE = "as it began to wait", "when what it waited for was done"
FIRST, THREAD = "before its first step", "while a thread worked for it"


def visit(workload: Callable[[list[str]], Awaitable[Any]]) -> list[tuple[str, list[str]]]:
    """Cancel a workload at each moment, until a run completes. Return the moments, and what was noted each time."""
    seen = []
    for nth in itertools.count(1):
        notes: list[str] = []

        async def main(nth: int = nth, notes: list[str] = notes) -> str:
            with Cancellation(nth) as cancellation:
                try:
                    await cancellation.call(workload(notes))
                except asyncio.CancelledError:
                    notes.append("cancelled")
                await cancellation.settle()
                return cancellation.struck.partition(" (")[0]

        struck = asyncio.run(main())
        seen.append((struck, notes))
        if not struck:
            break
    gc.collect()  # a coroutine that was never awaited would warn
    return seen


async def two_steps(notes: list[str]) -> None:
    notes.append("one")
    await asyncio.sleep(0)
    notes.append("two")
    await asyncio.sleep(0.0001)
    notes.append("three")


def test_each_await_is_a_moment_as_it_begins_and_as_what_is_waited_for_is_done() -> None:
    assert visit(two_steps) == [
        (FIRST, ["cancelled"]),
        (BEGINS, ["one", "cancelled"]),
        (BEGINS, ["one", "two", "cancelled"]),
        (DONE, ["one", "two", "cancelled"]),
        ("", ["one", "two", "three"]),
    ]


def test_awaits_of_nested_coroutines_are_moments() -> None:
    async def outer(notes: list[str]) -> None:
        await two_steps(notes)

    assert visit(outer) == visit(two_steps)


def test_awaits_of_tasks_that_the_call_starts_are_moments() -> None:
    async def step(notes: list[str], name: str) -> None:
        await asyncio.sleep(0)
        notes.append(name)

    async def together(notes: list[str]) -> None:
        await asyncio.gather(step(notes, "a"), step(notes, "b"))
        notes.append("end")

    seen = visit(together)
    assert seen[-1] == ("", ["a", "b", "end"])
    assert (BEGINS, ["cancelled"]) in seen
    assert (DONE, ["a", "b", "cancelled"]) in seen


def test_a_job_of_a_thread_is_not_begun_goes_on_or_is_done() -> None:
    async def workload(notes: list[str]) -> None:
        await asyncio.to_thread(notes.append, "job")

    assert visit(workload) == [
        (FIRST, ["cancelled"]),
        (THREAD, ["cancelled", "job"]),  # it was held, and went on
        (BEGINS, ["cancelled"]),
        (DONE, ["job", "cancelled"]),
        ("", ["job"]),
    ]


def test_a_job_that_the_cancelled_call_waits_for_goes_on() -> None:
    async def workload(notes: list[str]) -> None:
        job = asyncio.ensure_future(asyncio.to_thread(notes.append, "job"))
        try:
            await asyncio.shield(job)
        finally:
            await job

    *cancelled, completed = [notes for struck, notes in visit(workload) if struck != FIRST]
    assert len(cancelled) >= 4
    assert all(notes == ["job", "cancelled"] for notes in cancelled)
    assert completed == ["job"]


def test_a_shielded_task_is_held_until_it_is_settled() -> None:
    notes: list[str] = []

    async def later() -> None:
        notes.append("later")

    async def shielding() -> None:
        await asyncio.shield(asyncio.ensure_future(later()))

    async def held() -> None:
        with Cancellation(2) as cancellation:
            await asyncio.gather(cancellation.call(shielding()), return_exceptions=True)
            for _ in range(5):
                await asyncio.sleep(0)
            assert notes == []
            assert cancellation.left == {later.__qualname__}
            await cancellation.settle()
            assert cancellation.left == set()
        assert notes == ["later"]

    asyncio.run(held())


def test_a_close_that_blocks_until_the_threads_have_ended_lets_them_go_on() -> None:
    notes: list[str] = []

    async def main() -> None:
        pool = ThreadPoolExecutor(1)
        with Cancellation(2) as cancellation:

            async def workload() -> None:
                await asyncio.get_running_loop().run_in_executor(pool, notes.append, "job")

            await asyncio.gather(cancellation.call(workload()), return_exceptions=True)
            assert cancellation.struck.startswith(THREAD)
            assert (notes, cancellation.left) == ([], {"a thread"})
            pool.shutdown(wait=True)
            assert notes == ["job"]

    asyncio.run(main())


def test_a_later_call_that_waits_for_what_goes_on_lets_it_go_on() -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def background() -> None:
            done.set()

        async def shielding() -> None:
            await asyncio.shield(asyncio.ensure_future(background()))

        with Cancellation(2) as cancellation:
            await asyncio.gather(cancellation.call(shielding()), return_exceptions=True)
            assert not done.is_set()
            assert await cancellation.after(done.wait())

    asyncio.run(main())


def test_moments_are_counted_over_all_calls() -> None:
    async def main() -> list[int]:
        with Cancellation() as cancellation:
            counts = []
            for _ in range(2):
                await cancellation.call(two_steps([]))
                counts.append(cancellation.moments)
        return counts

    assert asyncio.run(main()) == [4, 8]


def test_an_awaitable_that_is_not_a_coroutine_can_be_cancelled() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        with Cancellation(1) as cancellation:
            await asyncio.gather(cancellation.call(future), return_exceptions=True)
        assert cancellation.struck == FIRST

    asyncio.run(main())


def test_nothing_stays_patched() -> None:
    def patched() -> list[Any]:
        thread = threading.Thread
        return [ThreadPoolExecutor.submit, threading.Condition.wait, thread.join, thread.start]

    before = patched()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with Cancellation(2) as cancellation:
            await asyncio.gather(cancellation.call(two_steps([])), return_exceptions=True)
        assert loop.get_task_factory() is None

    asyncio.run(main())
    assert patched() == before
