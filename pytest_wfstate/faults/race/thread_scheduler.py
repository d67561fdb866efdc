"""The scheduler of threads: they run one at a time, and switch as a schedule says.

The running thread decides, before each of its steps, which thread makes the next one; so a step costs little where no
switch is due. `current` is what the running thread is to the scheduler.
"""

from __future__ import annotations

import _thread
import ctypes
import dataclasses
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Protocol

from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.race.clocks import VirtualClock
from pytest_wfstate.faults.race.schedule import (
    MAX_STEPS,
    MAX_WAKEUPS,
    Access,
    ClientProgress,
    Key,
    ScheduleRun,
    ScheduleStep,
    Stuck,
    livelock,
)
from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.report_text import short
from pytest_wfstate.faults.source_lines import SourceLine

MEMORY: frozenset[Key] = frozenset({("memory", 0, "")})
"""What every step in memory writes: there is no way to tell which objects it reaches, so any two may conflict.

Steps at locks write it too: what follows one, up to the next line, belongs to the same step.
"""

_allocate = _thread.allocate_lock  # the real one, whatever stands in for it elsewhere


class Abandoned(BaseException):
    """Ends a client whose schedule is over. An `except Exception` in a store that retries does not catch it."""


class HeldLock(Protocol):
    """A lock, as far as the scheduler knows it."""

    number: int
    holder: ScheduledThread | None

    def __str__(self) -> str: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """What a client waits for: a lock, or any step of another client; and whether its wait has a limit."""

    access: Access
    lock: HeldLock | None = None
    is_timed: bool = False


class ThreadScheduler:
    """Runs threads as one schedule says."""

    def __init__(self, clients: int, choices: Choices, is_under_test: Callable[[str], bool]) -> None:
        self.run = ScheduleRun()
        self.is_under_test = is_under_test
        self.threads = [ScheduledThread(self, number) for number in range(clients)]
        self.run.acked = {thread.number: thread.progress.acked for thread in self.threads}
        self.locks = 0
        self.clock = VirtualClock()
        """What the clients see: all of them the same."""
        self.has_begun = False
        self.is_over = False
        self._choices = choices
        self._left = set(range(clients))
        self._waiting: dict[int, Wait] = {}
        self._wakeups = 0
        self._enabled: tuple[int, ...] = ()
        self._granted = False
        self._running = 0
        self._ending = _allocate()
        self._ended = _allocate()
        self._ended.acquire()

    def follow(self, timeout: float) -> None:
        """Run the clients until all have finished, or cannot."""
        self.has_begun = True
        self.clock.reset()
        try:
            self._resume(self._choose())
            patience = Patience(timeout)
            while not self._ended.acquire(timeout=patience.interval):
                if patience.is_over(len(self.run.steps)):
                    self._give_up(self._describe_hang())
                    abandon(self.threads[self._running].ident)
        finally:
            self._end()

    def take_run(self) -> ScheduleRun:
        """Return the run and forget it: locks made meanwhile keep this scheduler alive as long as their owners live."""
        run, self.run = self.run, ScheduleRun()
        return run

    def step(self, thread: ScheduledThread, access: Access) -> None:
        """Wait until the schedule allows the operation that the thread is about to make."""
        if self.is_over:
            raise Abandoned
        if self._granted:
            self._granted = False  # it was resumed for this very step
        else:
            self._unblock_sleepers(thread)
            self._switch_from(thread)
        self._record(thread, access)

    def wait(self, thread: ScheduledThread, wait: Wait) -> bool:
        """Mark the step just made as blocked, and wait until it may succeed.

        Returns whether the wait timed out instead.
        """
        self.run.steps[-1] = ScheduleStep(thread.number, wait.access, blocked=True)
        self._waiting[thread.number] = wait
        self._switch_from(thread)
        self._record(thread, wait.access)
        return thread.timed_out

    def released(self, lock: HeldLock) -> None:
        """Unblock the clients that wait for a lock."""
        for client, wait in list(self._waiting.items()):
            if wait.lock is lock:
                self._waiting.pop(client, None)

    def finish(self, thread: ScheduledThread, result: Any) -> None:
        """Record the result of a client that has finished."""
        if self.is_over:
            return
        if self._granted:
            self._granted = False
            self._record(thread, Access("end", "", writes=MEMORY))
        self._unblock_sleepers(thread)
        self.run.results[thread.number] = result
        self._left.discard(thread.number)
        if not self._left:
            self._end()
            return
        try:
            self._resume(self._choose())
        except Stuck as stuck:
            self._give_up(str(stuck))

    def note_unseen(self, what: str) -> None:
        """Note something that cannot be interleaved: a clean result would prove nothing."""
        if not self.is_over and what not in self.run.unseen:
            self.run.unseen.append(what)

    def _unblock_sleepers(self, thread: ScheduledThread) -> None:
        """Unblock the clients that wait for any step of another, now that one was made."""
        if self._waiting:
            self._wakeups = 0
            for client, wait in list(self._waiting.items()):
                if wait.lock is None and client != thread.number:
                    del self._waiting[client]

    def _switch_from(self, thread: ScheduledThread) -> None:
        try:
            client = self._choose()
        except Stuck as stuck:
            self._give_up(str(stuck))
            raise Abandoned from None
        if client != thread.number:
            self._resume(client)
            thread.wait_until_scheduled()
            self._granted = False

    def _resume(self, client: int) -> None:
        self._granted = True
        self._running = client
        self.threads[client].gate.release()

    def _choose(self) -> int:
        """Choose the next client."""
        runnable = self._runnable()
        position = len(self.run.choices)
        last = self.run.choices[-1] if position else 0
        client = self._choices[position] if position < len(self._choices) else last
        if client not in runnable:
            self.run.diverged |= position < len(self._choices)
            client = runnable[0]
        self._enabled = runnable
        self.threads[client].timed_out = self._waiting.pop(client, None) is not None
        return client

    def _runnable(self) -> tuple[int, ...]:
        runnable = self._left - self._waiting.keys() if self._waiting else self._left
        if not runnable and self._wakeups < MAX_WAKEUPS:
            self._wakeups += 1
            runnable = {client for client, wait in self._waiting.items() if wait.is_timed}  # their waits time out
        if not runnable:
            raise Stuck(self._describe_stuck())
        return tuple(sorted(runnable))

    def _record(self, thread: ScheduledThread, access: Access) -> None:
        run, progress = self.run, thread.progress
        run.steps.append(ScheduleStep(thread.number, access))
        run.choices.append(thread.number)
        run.enabled.append(self._enabled)
        progress.steps += 1
        if progress.steps > MAX_STEPS:
            self._give_up(f"client {thread.number + 1} made {MAX_STEPS:,} steps without finishing")
            raise Abandoned

    def _give_up(self, why: str) -> None:
        if not self.is_over:
            self.run.stuck = why
            self._end()

    def _end(self) -> None:
        """End the schedule, also for threads that still wait to be resumed."""
        with self._ending:
            if self.is_over:
                return
            self.is_over = True
        for client in self._left:
            if self.threads[client].gate.locked():
                self.threads[client].gate.release()
        self._ended.release()

    def _describe_stuck(self) -> str:
        waiting = sorted(self._waiting.items())
        if any(wait.is_timed for _, wait in waiting):
            return livelock({client: wait.access for client, wait in waiting})
        return "deadlock: " + "; ".join(f"client {client + 1} waits {_describe_wait(wait)}" for client, wait in waiting)

    def _describe_hang(self) -> str:
        thread = self.threads[self._running]
        frame = sys._current_frames().get(thread.ident)
        line = self.line(frame)
        where = f". It is at {short(line)}: {line.text}" if line else ""
        return (
            f"client {thread.number + 1} neither made a step nor finished in time. It may wait for a lock that the "
            "scheduler does not control: make locks in setup or in a client, or keep them in a module, class or "
            f"closure{where}"
        )

    def line(self, frame: types.FrameType | None) -> SourceLine | None:
        """Return the innermost line of the code under test."""
        return innermost_line(frame, self.is_under_test)


class ScheduledThread:
    """A client's thread, as the scheduler sees it."""

    def __init__(self, scheduler: ThreadScheduler, number: int) -> None:
        self.scheduler = scheduler
        self.number = number
        self.gate = _allocate()
        self.gate.acquire()
        self.ident = 0
        self.progress = ClientProgress()
        self.held: frozenset[tuple[int, bool]] = frozenset()
        """The locks that it holds."""
        self.timed_out = False
        """Whether its last wait timed out."""
        self.has_polled = False
        """Whether its event loop has polled since its last step at an await."""
        self._naps = 0

    def wait_until_scheduled(self) -> None:
        """Wait until the scheduler resumes this client."""
        self.gate.acquire()
        if self.scheduler.is_over:
            raise Abandoned

    def step(self, access: Access) -> None:
        """Wait until the schedule allows the operation that is about to be made."""
        self.scheduler.step(self, access)

    def access(self, kind: str, what: str = "", keys: frozenset[Key] = frozenset()) -> Access:
        """Describe the operation that is about to be made, and where."""
        line = self.scheduler.line(sys._getframe(1))
        return Access(kind, what or place(line), line, writes=MEMORY | keys, held=self.held)

    def sleep(self, seconds: float | None) -> None:
        """Let others run instead of waiting: for a time, or for what they may do."""
        access = self.access("wait" if seconds is None else "sleep")
        self.step(access)
        self.scheduler.wait(self, Wait(access, is_timed=seconds is not None))
        if seconds is not None:
            self.let_pass(seconds)

    def let_pass(self, seconds: float) -> None:
        """Let the time of a wait pass that has ended because of its limit."""
        self._naps += 1
        self.scheduler.clock.sleep(seconds, self._naps)


class ThreadContext(threading.local):
    """What the running thread is to the scheduler."""

    scheduler: ThreadScheduler | None = None
    """The scheduler to which objects made in this thread belong."""
    client: ScheduledThread | None = None
    """The client that runs in it."""
    tasks_clock: VirtualClock | None = None
    """What its tasks see, if they are clients."""

    @property
    def clock(self) -> VirtualClock | None:
        """What its code sees, if that is not the real time."""
        return self.tasks_clock if self.client is None else self.client.scheduler.clock


current = ThreadContext()


def abandon(thread: int) -> None:
    """End a thread as soon as it executes Python code again."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Abandoned))


def place(line: SourceLine | None) -> str:
    """Format a place in the code, as short as possible."""
    return f"{os.path.basename(line.path)}:{line.number}" if line else ""


def innermost_line(frame: types.FrameType | None, is_under_test: Callable[[str], bool]) -> SourceLine | None:
    """Return the innermost line of a stack that is in a file under test."""
    while frame is not None:
        code = frame.f_code
        if is_under_test(code.co_filename):
            return SourceLine(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name)
        frame = frame.f_back
    return None


def _describe_wait(wait: Wait) -> str:
    lock = wait.lock
    if lock is None:
        return f"at {wait.access.path} for something that never happens"
    where = f"at {place(wait.access.line)} " if wait.access.line else ""
    holder = f", held by client {lock.holder.number + 1}" if lock.holder else ""
    return f"{where}for {lock}{holder}"
