"""Threads: clients that share an object in memory, and take turns at every line or every opcode of its code.

A line reads and writes in one go what other threads may change in between, so lines alone miss `self.n += 1`; opcodes
miss nothing, but there are many. So the one is for few preemptions, and the other for more.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.faults.drive import call
from pytest_wfstate.faults.race.blocking import Waits
from pytest_wfstate.faults.race.module_locks import OldLocks
from pytest_wfstate.faults.race.schedule import PROGRESS, ClientFailed, ScheduleRun
from pytest_wfstate.faults.race.stepping import By, Spots, UnderTest, stepping
from pytest_wfstate.faults.race.thread_scheduler import Abandoned, ScheduledThread, ThreadScheduler, here
from pytest_wfstate.faults.replay_id import Choices

__tracebackhide__ = True


class Threads:
    """Clients in threads of this process, and what they share: `setup()` makes it, anew for every schedule.

    A client is called with what `setup` gave. An async one runs on an event loop of its own.
    """

    def __init__(
        self,
        setup: Callable[[], Any],
        clients: Sequence[Callable[[Any], Any]],
        timeout: float = 30,
        *,
        by: By = "line",
    ) -> None:
        self._setup = setup
        self._clients = clients
        self._timeout = timeout
        self._under_test = UnderTest()
        self._stepping = stepping(Spots(by, self._under_test))
        self._waits = Waits()
        self._old_locks = OldLocks(self._under_test, [setup, *clients])
        self._is_rehearsed = False
        self.shared: Any = None
        """What the clients of the last schedule shared."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:  # noqa: ARG002 - it has them always
        """Follow `choices`, and then let whoever runs run on as long as possible."""
        self._waits.replace()
        if not self._is_rehearsed:
            self._is_rehearsed = True
            rehearsal = self._follow(())  # what is imported, compiled or cached only once is so now
            if rehearsal.stuck and not choices:
                return rehearsal
        return self._follow(choices)

    def close(self) -> None:
        """Put back all that was replaced. Clients that hang are left to themselves."""
        self._stepping.off()
        self._waits.restore()

    def _follow(self, choices: Choices) -> ScheduleRun:
        scheduler = ThreadScheduler(len(self._clients), choices, self._under_test)
        self._old_locks.replace(scheduler)
        try:
            self._race_all(scheduler)
        finally:
            self._old_locks.restore()
        return scheduler.let_go()

    def _race_all(self, scheduler: ThreadScheduler) -> None:
        self.shared = self._made(scheduler)
        self._under_test.include(self.shared)
        threads = [self._thread(thread, client) for thread, client in zip(scheduler.racers, self._clients, strict=True)]
        self._stepping.on()
        collects = gc.isenabled()
        gc.disable()  # what it finds to finalize, and when, is not the same twice
        try:
            for thread in threads:
                thread.start()
            scheduler.follow(self._timeout)
        finally:
            if collects:
                gc.enable()
        for thread in threads:
            thread.join(0 if scheduler.run.stuck else self._timeout)

    def _made(self, scheduler: ThreadScheduler) -> Any:
        """Make what is shared, with locks that take turns."""
        here.scheduler = scheduler
        try:
            made = self._setup()
        finally:
            here.scheduler = None
        return _awaited(made, scheduler) if inspect.isawaitable(made) else made

    def _thread(self, thread: ScheduledThread, client: Callable[[Any], Any]) -> threading.Thread:
        name = f"wfstate-client-{thread.number + 1}"
        return threading.Thread(target=self._race, args=(thread, client, self.shared), name=name, daemon=True)

    def _race(self, thread: ScheduledThread, client: Callable[[Any], Any], shared: Any) -> None:
        thread.thread = threading.get_ident()
        try:
            thread.stand_by()
            thread.scheduler.finish(thread, self._result(thread, client, shared))
        except Abandoned:
            return

    def _result(self, thread: ScheduledThread, client: Callable[[Any], Any], shared: Any) -> Any:
        PROGRESS.set(thread.progress)
        here.scheduler, here.client = thread.scheduler, thread
        self._stepping.enter()
        try:
            return call(client, shared)
        except Abandoned:
            raise
        except BaseException as error:
            return ClientFailed(error, traceback.format_exc())
        finally:
            self._stepping.leave()
            here.scheduler, here.client = None, None


def _awaited(made: Any, scheduler: ThreadScheduler) -> Any:
    """Wait for what an async setup makes, in a thread of its own: an event loop may be running in this one."""
    given: list[Any] = []

    async def wait() -> Any:
        return await made

    def run() -> None:
        here.scheduler = scheduler
        try:
            given.extend((asyncio.run(wait()), None))
        except BaseException as error:
            given.extend((None, error))

    thread = threading.Thread(target=run, name="wfstate-setup", daemon=True)
    thread.start()
    thread.join()
    value, error = given
    if error is not None:
        raise error
    return value
