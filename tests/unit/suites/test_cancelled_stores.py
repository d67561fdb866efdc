"""Async stores that are right in different ways pass the clauses about cancelled calls; one that hangs fails."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from pytest_wfstate.suites import Contract, Operation, ResumeSuite, Scenario, Suite
from pytest_wfstate.zoo.correct_stores import CORRECT_STORES
from pytest_wfstate.zoo.shared_bugs.cancel import Awaited
from tests.unit.suites.only import only

SAVE, DELETE = "test_cancel_save", "test_cancel_delete"


class Resume(Awaited):
    correct = CORRECT_STORES["resume"]


class InSuite(ResumeSuite):
    store: ClassVar[type[Any]]

    def open(self, home: Path) -> Any:
        return self.store(home)


class AwaitsNothing(Resume):
    pass


@only(SAVE, DELETE, "test_save_load")
class TestAwaitsNothing(InSuite):
    """It can be cancelled only before its first step."""

    store = AwaitsNothing


class WaitsWhenClosed(Resume):
    """A cancelled call goes on in the background; closing the store waits for it."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.background: set[asyncio.Future[Any]] = set()

    async def make(self, call: Callable[[], Any]) -> Any:
        task = asyncio.ensure_future(super().make(call))
        self.background.add(task)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        await asyncio.gather(*self.background, return_exceptions=True)


@only(SAVE, DELETE)
class TestWaitsWhenClosed(InSuite):
    store = WaitsWhenClosed


class OwnThreads(Resume):
    """Calls run in a pool, whose `shutdown` blocks until they have ended."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.pool = ThreadPoolExecutor(1)

    async def make(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    def close(self) -> None:
        self.pool.shutdown(wait=True)


@only(SAVE, DELETE)
class TestOwnThreads(InSuite):
    store = OwnThreads


class NeverClosed(Resume):
    """What cannot be closed may go on for as long as its event loop."""

    async def make(self, call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)

    def __getattr__(self, name: str) -> Any:
        if name in ("close", "aclose"):
            raise AttributeError(name)
        return super().__getattr__(name)


@only(SAVE, DELETE)
class TestNeverClosed(InSuite):
    store = NeverClosed


class TakesTurns(Resume):
    """Its lock is released however a call ends."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.lock = asyncio.Lock()

    async def make(self, call: Callable[[], Any]) -> Any:
        async with self.lock:
            await asyncio.sleep(0)
            result = call()
            await asyncio.sleep(0)
            return result


@only(SAVE, DELETE)
class TestTakesTurns(InSuite):
    store = TakesTurns


class InTasks(Resume):
    """A call is done by a task of a group."""

    async def make(self, call: Callable[[], Any]) -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(super().make(call))
        return task.result()


@only(SAVE, DELETE)
class TestInTasks(InSuite):
    store = InTasks


class FinishesAllTheSame(Resume):
    """A cancelled call is made, and returns as if it had not been cancelled: then it must have been made."""

    async def make(self, call: Callable[[], Any]) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return call()


@only(SAVE, DELETE)
class TestFinishesAllTheSame(InSuite):
    store = FinishesAllTheSame


class NeverEnds(Resume):
    """A cancelled call waits for something that never happens, and ignores that it is cancelled again."""

    async def make(self, call: Callable[[], Any]) -> Any:
        try:
            await asyncio.sleep(0)
            return call()
        except asyncio.CancelledError:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue


@only(DELETE)
class TestNeverEnds(InSuite):
    store = NeverEnds
    known_failures: ClassVar = {"resume.cancel.delete": "it does not return within the time limit"}

    @pytest.fixture(autouse=True)
    def _be_impatient(self, _wfstate_item: None) -> None:
        self.context.driver._alarm.seconds = 0.2


class MixedErrors(Resume):
    """A cancelled call raises the store's own error."""

    async def make(self, call: Callable[[], Any]) -> Any:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise ValueError("cancelled") from None
        return call()


@only(SAVE, DELETE)
class TestMixedErrors(InSuite):
    store = MixedErrors


# A contract of a user's own, in memory


class Counts:
    """The reference."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def total(self, name: str) -> int:
        return self.counts.get(name, 0)


def _names(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


ADD = Operation("add", lambda ids: st.tuples(st.sampled_from(ids), st.integers(1, 9)), mutates=True, positional=2)
TOTAL = Operation("total", _names)
COUNTS = Contract(
    "counts", [ADD, TOTAL], lambda _: Counts(), write=ADD, reads=lambda ids: [TOTAL(name) for name in ids]
)


class CountSuite(Suite):
    contract = COUNTS
    medium = "memory"
    scenarios: ClassVar = {"add": [Scenario([ADD("a", 1), ADD("a", 2)], before=[ADD("b", 1)])]}
    store: ClassVar[type[Any]]

    @pytest.fixture(autouse=True)
    def _keep(self) -> Iterator[None]:
        self.kept: dict[Path, dict[str, int]] = collections.defaultdict(dict)
        yield
        del self.kept

    def open(self, home: Path) -> Any:
        return self.store(self.kept[home])


class AddsAtOnce:
    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    async def add(self, name: str, number: int) -> None:
        await asyncio.sleep(0)
        self.counts[name] = self.counts.get(name, 0) + number
        await asyncio.sleep(0)

    async def total(self, name: str) -> int:
        return self.counts.get(name, 0)


@only("test_cancel_add")
class TestAddsAtOnce(CountSuite):
    store = AddsAtOnce


class AddsOneByOne(AddsAtOnce):
    async def add(self, name: str, number: int) -> None:
        for _ in range(number):
            await super().add(name, 1)


@only("test_cancel_add")
class TestAddsOneByOne(CountSuite):
    store = AddsOneByOne
    known_failures: ClassVar = {"counts.cancel.add": "1 of 2 was added"}
