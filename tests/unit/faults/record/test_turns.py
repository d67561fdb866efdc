"""Whatever order a recording has, it leaves Python as it was, and its threads and tasks can be told apart."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import queue
import selectors
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.record.turns import FollowedTurns
from pytest_wfstate.faults.replay_id import EARLY, LATE
from pytest_wfstate.faults.trace.strands import Strand, Strands

ORDERS = ["", LATE, EARLY, "mix1", "t0.1_1.1"]


def replaced() -> list[Any]:
    """All that a recording replaces for the sake of threads and tasks."""
    return [
        sys.getswitchinterval(),
        time.sleep,
        threading.Thread.start,
        threading.Thread.join,
        _thread.start_new_thread,
        threading.Condition.wait,
        queue.Queue.put,
        queue.Queue.get,
        queue.SimpleQueue,
        selectors.SelectSelector.select,
        selectors.PollSelector.select,
        selectors.EpollSelector.select,
        asyncio.BaseEventLoop.create_task,
        asyncio.BaseEventLoop.call_at,
        asyncio.BaseEventLoop._run_once,  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_all_that_was_replaced_is_put_back(home: Path, order: str) -> None:
    before = replaced()
    with Recorder(home, order=order):
        (home / "a").touch()
    assert replaced() == before


@pytest.mark.parametrize("order", ORDERS)
def test_all_that_was_replaced_is_put_back_after_an_error(home: Path, order: str) -> None:
    before = replaced()
    with contextlib.suppress(ZeroDivisionError), Recorder(home, order=order):
        threading.Thread(target=(home / "a").touch).start()
        raise ZeroDivisionError
    assert replaced() == before


def recorded(home: Path, order: str, workload: Callable[[], Any]) -> list[str]:
    with Recorder(home, order=order) as recorder:
        workload()
    assert recorder.keeps_order
    assert recorder.unmeasured == []
    return [getattr(item, "name", "") for item in recorder.trace().items]


@pytest.mark.parametrize(("order", "names"), [(LATE, "0321"), (EARLY, "1230"), ("t2.1_0.1_3.1", "2031")])
def test_threads_have_their_turns(home: Path, order: str, names: str) -> None:
    def workload() -> None:
        threads = [threading.Thread(target=(home / name).touch) for name in "123"]
        for thread in threads:
            thread.start()
        (home / "0").touch()
        for thread in threads:
            thread.join()

    assert "".join(recorded(home, order, workload)) == names


@pytest.mark.parametrize(("order", "names"), [(LATE, "0321"), (EARLY, "1230"), ("t0.1", "1230")])
def test_tasks_have_their_turns(home: Path, order: str, names: str) -> None:
    async def touch(name: str) -> None:
        (home / name).touch()

    async def workload() -> None:
        tasks = [asyncio.create_task(touch(name)) for name in "123"]
        await asyncio.sleep(0)
        await touch("0")
        await asyncio.gather(*tasks)

    assert "".join(recorded(home, order, lambda: asyncio.run(workload()))) == names


@pytest.mark.parametrize("order", [LATE, EARLY])
def test_tasks_that_poll_do_not_wait_for_ever(home: Path, order: str) -> None:
    """The main task waits for the other one to begin, and that for the main one to go on, without blocking."""

    async def other() -> None:
        (home / "begun").touch()
        while not (home / "seen").exists():  # noqa: ASYNC110 - polling is what is tested
            await asyncio.sleep(0)

    async def workload() -> None:
        task = asyncio.create_task(other())
        while not (home / "begun").exists():  # noqa: ASYNC110
            await asyncio.sleep(0)
        (home / "seen").touch()
        await task

    assert recorded(home, order, lambda: asyncio.run(workload())) == ["begun", "seen"]


def test_a_strand_that_looks_while_another_has_its_turn_does_not_go_first() -> None:
    class Going(Strand):
        """Has its turn while its name is looked at."""

        def __getattribute__(self, name: str) -> Any:
            if name == "name" and turns._items == 0:
                turns.done(Strand("1"))
            return super().__getattribute__(name)

    strands = Strands()
    turns = FollowedTurns(strands, "t1.1_2.1_3.1")
    turns._is_on = True
    first, second, third = Going("1"), Strand("2"), Strand("3")
    strands._by_thread = {1: second, 2: first, 3: third}
    first.is_held = second.is_held = third.is_held = True

    assert not turns._may_go(third)

    turns.done(second)
    assert turns._may_go(third)
