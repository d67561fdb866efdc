"""Threads: clients that share an object in memory, and can be preempted before every line or opcode of its code.

A line reads and writes in one step what other threads may change in between, so lines alone miss `self.n += 1`.
Opcodes miss nothing, but there are many: use them with few preemptions, and lines with more.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.faults.race.blocking import BlockingPatches
from pytest_wfstate.faults.race.module_locks import ModuleLocks
from pytest_wfstate.faults.race.schedule import PROGRESS, ClientFailed, ScheduleRun
from pytest_wfstate.faults.race.stepping import stepping
from pytest_wfstate.faults.race.stop_points import Granularity, StopPoints, UnderTest
from pytest_wfstate.faults.race.thread_scheduler import Abandoned, ScheduledThread, ThreadScheduler, current
from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.sync_async import call

__tracebackhide__ = True


class Threads:
    """Clients in threads of this process, and what they share: `setup()` makes it again for every schedule.

    A client is called with what `setup` returned. Async clients each run on their own event loop.
    """

    def __init__(
        self,
        setup: Callable[[], Any],
        clients: Sequence[Callable[[Any], Any]],
        timeout: float = 30,
        *,
        by: Granularity = "line",
    ) -> None:
        self._setup = setup
        self._clients = clients
        self._timeout = timeout
        self._under_test = UnderTest()
        self._stepping = stepping(StopPoints(by, self._under_test))
        self._blocking = BlockingPatches()
        self._module_locks = ModuleLocks(self._under_test, [setup, *clients])
        self._is_rehearsed = False
        self.shared: Any = None
        """What the clients of the last schedule shared."""

    def run(self, choices: Choices, *, lines: bool = False) -> ScheduleRun:  # noqa: ARG002 - it has them always
        """Follow `choices`, then run on without preemption."""
        self._blocking.replace()
        if not self._is_rehearsed:
            self._is_rehearsed = True
            rehearsal = self._follow(())  # does what happens only once: imports, compilation, caches
            if rehearsal.stuck and not choices:
                return rehearsal
        return self._follow(choices)

    def close(self) -> None:
        """Put back everything that was replaced. Clients that hang keep their threads."""
        self._stepping.off()
        self._blocking.restore()

    def _follow(self, choices: Choices) -> ScheduleRun:
        scheduler = ThreadScheduler(len(self._clients), choices, self._under_test)
        self._module_locks.replace(scheduler)
        try:
            self._race_all(scheduler)
        finally:
            self._module_locks.restore()
        return scheduler.take_run()

    def _race_all(self, scheduler: ThreadScheduler) -> None:
        self.shared = self._make_shared(scheduler)
        self._under_test.include(self.shared)
        threads = [
            self._thread(thread, client) for thread, client in zip(scheduler.threads, self._clients, strict=True)
        ]
        self._stepping.on()
        collects = gc.isenabled()
        gc.disable()  # what it finalizes, and when, differs from run to run
        try:
            for thread in threads:
                thread.start()
            scheduler.follow(self._timeout)
        finally:
            if collects:
                gc.enable()
        for thread in threads:
            thread.join(0 if scheduler.run.stuck else self._timeout)

    def _make_shared(self, scheduler: ThreadScheduler) -> Any:
        """Make the shared object, with scheduled locks."""
        current.scheduler = scheduler
        try:
            shared = self._setup()
        finally:
            current.scheduler = None
        return _awaited(shared, scheduler) if inspect.isawaitable(shared) else shared

    def _thread(self, thread: ScheduledThread, client: Callable[[Any], Any]) -> threading.Thread:
        name = f"wfstate-client-{thread.number + 1}"
        return threading.Thread(target=self._race, args=(thread, client, self.shared), name=name, daemon=True)

    def _race(self, thread: ScheduledThread, client: Callable[[Any], Any], shared: Any) -> None:
        thread.ident = threading.get_ident()
        try:
            thread.wait_until_scheduled()
            thread.scheduler.finish(thread, self._result(thread, client, shared))
        except Abandoned:
            return

    def _result(self, thread: ScheduledThread, client: Callable[[Any], Any], shared: Any) -> Any:
        PROGRESS.set(thread.progress)
        current.scheduler, current.client = thread.scheduler, thread
        self._stepping.enter()
        try:
            return call(client, shared)
        except Abandoned:
            raise
        except BaseException as error:
            return ClientFailed(error)
        finally:
            self._stepping.leave()
            current.scheduler, current.client = None, None


def _awaited(shared: Any, scheduler: ThreadScheduler) -> Any:
    """Wait for the result of an async setup, in its own thread: an event loop may be running in this one."""
    outcome: list[Any] = []

    async def wait() -> Any:
        return await shared

    def run() -> None:
        current.scheduler = scheduler
        try:
            outcome.extend((asyncio.run(wait()), None))
        except BaseException as error:
            outcome.extend((None, error))

    thread = threading.Thread(target=run, name="wfstate-setup", daemon=True)
    thread.start()
    thread.join()
    value, error = outcome
    if error is not None:
        raise error
    return value
