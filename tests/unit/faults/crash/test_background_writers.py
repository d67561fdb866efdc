"""What goes wrong only when a background thread or task lags behind, or hurries, is found."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import socketserver
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.replay_id import ReplayId
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import read, save

STEPS = ("plan", "pay", "mail")


class Agent:
    """An agent whose saver writes each checkpoint in a thread, while the next step is already being done."""

    def __init__(self, crash: Crash, think: Callable[[], None] = lambda: None) -> None:
        self.ledger = crash.world([])
        self._think = think

    def __call__(self, home: Path) -> None:
        with ThreadPoolExecutor(max_workers=1) as saver:
            for step in STEPS:
                self.ledger.append(step)
                saver.submit(save, home, step)
                self._think()

    @staticmethod
    def done_steps_are_saved(disk: Disk) -> None:
        """Fail if the step before the last one that was done has no checkpoint."""
        done = len(disk.effects)
        saved = read(disk.home)
        assert done < 2 or (saved is not None and STEPS.index(saved) >= done - 2)


class CarefulAgent(Agent):
    """The same, but it waits for each checkpoint."""

    def __call__(self, home: Path) -> None:
        with ThreadPoolExecutor(max_workers=1) as saver:
            for step in STEPS:
                self.ledger.append(step)
                saver.submit(save, home, step).result()


class TestThreads:
    @pytest.mark.parametrize("think", [lambda: None, lambda: time.sleep(0.001)], ids=["at once", "after a sleep"])
    def test_a_saver_that_lags_behind_is_found(self, lab: Lab, think: Callable[[], None]) -> None:
        crash = lab()
        agent = Agent(crash, think)
        with pytest.raises(CrashBug):
            crash.explore(agent, agent.done_steps_are_saved, model="kill")

    def test_a_saver_that_lags_behind_only_if_it_is_held_back_is_found(self, lab: Lab) -> None:
        crash = lab()
        runs: list[Path] = []

        class Lucky(Agent):
            """Its saver is as fast as that of an agent which waits for it, in the first recording."""

            def __call__(self, home: Path) -> None:
                runs.append(home)
                with ThreadPoolExecutor(max_workers=1) as saver:
                    for step in STEPS:
                        self.ledger.append(step)
                        saved = saver.submit(save, home, step)
                        if len(runs) == 1:
                            saved.result()

        agent = Lucky(crash)
        with pytest.raises(CrashBug, match="the order       the other threads and tasks were held back\n") as caught:
            crash.explore(agent, agent.done_steps_are_saved, model="kill")
        assert caught.value.replay_id.startswith("late:kill-")

    def test_a_saver_that_lags_behind_steps_in_threads_is_found(self, lab: Lab) -> None:
        """The main thread only waits for the steps, as in a graph whose nodes run in a pool."""
        crash = lab()
        runs: list[Path] = []

        class Graph(Agent):
            def __call__(self, home: Path) -> None:
                runs.append(home)
                with ThreadPoolExecutor() as pool, ThreadPoolExecutor(max_workers=1) as saver:
                    for step in STEPS:
                        pool.submit(self.ledger.append, step).result()
                        saved = saver.submit(save, home, step)
                        if len(runs) == 1:
                            saved.result()

        agent = Graph(crash)
        with pytest.raises(CrashBug, match="the other threads and tasks were held back"):
            crash.explore(agent, agent.done_steps_are_saved, model="kill")

    def test_a_saver_that_lags_behind_effects_of_a_server_is_found(self, lab: Lab) -> None:
        """While the agent waits for the server, its saver is held back, but not the server."""
        crash = lab()
        runs: list[Path] = []
        ledger = crash.world([])

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                ledger.append(self.rfile.readline().decode())
                self.wfile.write(b"done")

        def workload(home: Path) -> None:
            runs.append(home)
            with ThreadPoolExecutor(max_workers=1) as saver:
                for step in STEPS:
                    with socket.create_connection(("127.0.0.1", server.server_address[1])) as client:
                        client.sendall(f"{step}\n".encode())
                        client.recv(4)
                    saved = saver.submit(save, home, step)
                    if len(runs) == 1:
                        saved.result()

        with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                with pytest.raises(CrashBug, match="the other threads and tasks were held back"):
                    crash.explore(workload, Agent.done_steps_are_saved, model="kill")
            finally:
                server.shutdown()
                thread.join()

    def test_one_that_waits_for_its_saver_is_clean(self, lab: Lab) -> None:
        crash = lab()
        agent = CarefulAgent(crash)
        result = crash.explore(agent, agent.done_steps_are_saved, model="kill")
        assert result.verdict == "CLEAN"

    def test_what_is_only_wrong_when_a_thread_is_early_is_found(self, lab: Lab) -> None:
        crash = lab()

        def workload(home: Path) -> None:
            cleaner = threading.Thread(target=lambda: (home / "old").unlink())
            cleaner.start()
            save(home, "text")
            cleaner.join()

        def check(disk: Disk) -> None:
            assert (disk.home / "old").exists() or read(disk.home) == "text"

        with pytest.raises(CrashBug):
            crash.explore(workload, check, setup=lambda home: (home / "old").touch(), model="kill")


class TestTasks:
    @staticmethod
    def agent(crash: Crash) -> tuple[Any, Callable[[Path], Any]]:
        ledger = crash.world([])

        async def saving(home: Path) -> None:
            save(home, "paid")

        async def workload(home: Path) -> None:
            ledger.append("pay")
            saver = asyncio.create_task(saving(home))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ledger.append("mail")
            await saver

        return ledger, workload

    @staticmethod
    def check(disk: Disk) -> None:
        assert len(disk.effects) < 2 or read(disk.home) == "paid"

    def test_a_task_that_lags_behind_is_found(self, lab: Lab) -> None:
        crash = lab()
        _, workload = self.agent(crash)
        with pytest.raises(CrashBug, match="the other threads and tasks were held back") as caught:
            crash.explore(workload, self.check, model="kill")
        replay = ReplayId.read(caught.value.replay_id)
        again = lab(replay=replay)
        _, workload = self.agent(again)
        with pytest.raises(CrashBug):
            again.explore(workload, self.check, model="kill")

    def test_on_a_running_loop(self, lab: Lab) -> None:
        crash = lab()
        _, workload = self.agent(crash)
        with pytest.raises(CrashBug):
            asyncio.run(crash.aexplore(workload, self.check, model="kill"))

    def test_a_task_that_writes_in_a_thread_and_lags_behind_is_found(self, lab: Lab) -> None:
        crash = lab()
        ledger = crash.world([])

        async def workload(home: Path) -> None:
            ledger.append("pay")
            saver = asyncio.create_task(asyncio.to_thread(save, home, "paid"))
            await asyncio.sleep(0.02)
            ledger.append("mail")
            await saver

        with pytest.raises(CrashBug):
            crash.explore(workload, self.check, model="kill")

    def test_a_saver_on_aiosqlite_that_lags_behind_is_found(self, lab: Lab) -> None:
        crash = lab()
        runs: list[Path] = []
        ledger = crash.world([])

        async def workload(home: Path) -> None:
            runs.append(home)
            async with aiosqlite.connect(home / "db", isolation_level=None) as db:
                await db.execute("create table steps (step)")
                for step in STEPS:
                    ledger.append(step)
                    saver = asyncio.create_task(self.insert(db, step))
                    await (saver if len(runs) == 1 else asyncio.sleep(0))
                await saver

        def check(disk: Disk) -> None:
            if len(disk.effects) > 1:
                with contextlib.closing(sqlite3.connect(disk.home / "db")) as db:
                    assert db.execute("select count(*) from steps").fetchone()[0] >= len(disk.effects) - 1

        with pytest.raises(CrashBug, match="the other threads and tasks were held back"):
            crash.explore(workload, check, model="kill")

    @staticmethod
    async def insert(db: aiosqlite.Connection, step: str) -> None:
        await db.execute("insert into steps values (?)", (step,))

    def test_a_thread_that_lags_behind_is_found_on_a_running_loop(self, lab: Lab) -> None:
        crash = lab()
        ledger = crash.world([])

        async def workload(home: Path) -> None:
            ledger.append("pay")
            saver = asyncio.to_thread(save, home, "paid")
            await asyncio.gather(saver, self.mail(ledger))

        with pytest.raises(CrashBug):
            asyncio.run(crash.aexplore(workload, self.check, model="kill"))

    @staticmethod
    async def mail(ledger: Any) -> None:
        ledger.append("mail")
