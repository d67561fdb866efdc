"""A relay: threads that go on one at a time, and hand over to each other as a schedule says.

Whoever goes on decides, before each of its turns, who takes it; so a turn costs nothing but that where nobody else is
to go on. `here` tells a thread what it is to the lab.
"""

from __future__ import annotations

import _thread
import ctypes
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from pytest_wfstate.faults.race.schedule import Access, ClientProgress, Key, ScheduleRun, Stuck, Turn
from pytest_wfstate.faults.replay_id import Choices
from pytest_wfstate.faults.report_text import short
from pytest_wfstate.faults.source import SourceLine

MEMORY: frozenset[Key] = frozenset({("memory", 0, "")})
"""What every turn in memory writes: nobody can tell which objects it reaches, so any two may matter to each other.

That of a lock does too: what follows it, up to the next line, is done in the same turn.
"""

_MOST = 10_000  # turns of one client in one schedule
_WAKES = 100  # times that time may go by in vain, with nobody left to wait for

_allocate = _thread.allocate_lock  # the real one, whatever stands in for it elsewhere


class Abandoned(BaseException):
    """Ends a client whose schedule is over. No `except Exception` of a store that tries again and again stops it."""


class HeldLock(Protocol):
    """A lock, as far as a relay knows it."""

    number: int
    holder: ScheduledThread | None

    def __str__(self) -> str: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """What a client waits for: a lock, or that anybody does anything; and how long, if not for ever."""

    access: Access
    lock: HeldLock | None = None
    is_timed: bool = False


class ThreadScheduler:
    """One schedule, as it is followed by threads."""

    def __init__(self, clients: int, choices: Choices, is_under_test: Callable[[str], bool]) -> None:
        self.run = ScheduleRun()
        self.is_under_test = is_under_test
        self.racers = [ScheduledThread(self, number) for number in range(clients)]
        self.run.acked = {thread.number: thread.progress.acked for thread in self.racers}
        self.locks = 0
        self.late = 0.0
        """How many seconds have gone by that nobody waited for."""
        self.has_begun = False
        self.is_over = False
        self._choices = choices
        self._left = set(range(clients))
        self._waiting: dict[int, Wait] = {}
        self._woken = 0
        self._enabled: tuple[int, ...] = ()
        self._granted = False
        self._running = 0
        self._ending = _allocate()
        self._ended = _allocate()
        self._ended.acquire()

    def follow(self, timeout: float) -> None:
        """Let the clients run until all have come to their ends, or cannot."""
        self.has_begun = True
        try:
            self._hand_to(self._pick())
            seen = 0
            while not self._ended.acquire(timeout=timeout):
                if seen == len(self.run.turns):
                    self._give_up(self._hanging())
                    abandon(self.racers[self._running].thread)
                seen = len(self.run.turns)
        finally:
            self._end()

    def let_go(self) -> ScheduleRun:
        """Give what was run, and keep none of it: locks that were made meanwhile last as long as what has them."""
        run, self.run = self.run, ScheduleRun()
        return run

    def take(self, thread: ScheduledThread, access: Access) -> None:
        """Wait for the turn of an operation that is about to be made."""
        if self.is_over:
            raise Abandoned
        if self._granted:
            self._granted = False  # it was let go on for this very turn
        else:
            self._settle(thread)
            self._hand_on(thread)
        self._took(thread, access)

    def wait(self, thread: ScheduledThread, wait: Wait) -> bool:
        """Say that the turn just taken led to nothing, and take another when that may be otherwise.

        Tells whether nothing has changed, but time has gone by.
        """
        self.run.turns[-1] = Turn(thread.number, wait.access, blocked=True)
        self._waiting[thread.number] = wait
        self._hand_on(thread)
        self._took(thread, wait.access)
        return thread.is_late

    def released(self, lock: HeldLock) -> None:
        """Let those try again who wait for a lock."""
        for client, wait in list(self._waiting.items()):
            if wait.lock is lock:
                self._waiting.pop(client, None)

    def finish(self, thread: ScheduledThread, result: Any) -> None:
        """Say that a client has come to its end."""
        if self.is_over:
            return
        if self._granted:
            self._granted = False
            self._took(thread, Access("end", "", writes=MEMORY))
        self._settle(thread)
        self.run.results[thread.number] = result
        self._left.discard(thread.number)
        if not self._left:
            self._end()
            return
        try:
            self._hand_to(self._pick())
        except Stuck as stuck:
            self._give_up(str(stuck))

    def cannot_see(self, what: str) -> None:
        """Note something that takes no turns: what is found without it would prove nothing."""
        if not self.is_over and what not in self.run.unseen:
            self.run.unseen.append(what)

    def _settle(self, thread: ScheduledThread) -> None:
        """Let those try again who wait for anything at all, now that the last turn was not in vain."""
        if self._waiting:
            self._woken = 0
            for client, wait in list(self._waiting.items()):
                if wait.lock is None and client != thread.number:
                    del self._waiting[client]

    def _hand_on(self, thread: ScheduledThread) -> None:
        try:
            client = self._pick()
        except Stuck as stuck:
            self._give_up(str(stuck))
            raise Abandoned from None
        if client != thread.number:
            self._hand_to(client)
            thread.stand_by()
            self._granted = False

    def _hand_to(self, client: int) -> None:
        self._granted = True
        self._running = client
        self.racers[client].gate.release()

    def _pick(self) -> int:
        """Choose who goes on."""
        able = self._able()
        turn = len(self.run.choices)
        going_on = self.run.choices[-1] if turn else 0
        client = self._choices[turn] if turn < len(self._choices) else going_on
        if client not in able:
            self.run.diverged |= turn < len(self._choices)
            client = able[0]
        self._enabled = able
        self.racers[client].is_late = self._waiting.pop(client, None) is not None
        return client

    def _able(self) -> tuple[int, ...]:
        able = self._left - self._waiting.keys() if self._waiting else self._left
        if not able and self._woken < _WAKES:
            self._woken += 1
            able = {client for client, wait in self._waiting.items() if wait.is_timed}  # time goes by
        if not able:
            raise Stuck(self._why_stuck())
        return tuple(sorted(able))

    def _took(self, thread: ScheduledThread, access: Access) -> None:
        run, progress = self.run, thread.progress
        run.turns.append(Turn(thread.number, access))
        run.choices.append(thread.number)
        run.enabled.append(self._enabled)
        progress.taken += 1
        if progress.taken > _MOST:
            self._give_up(f"client {thread.number + 1} took {_MOST:,} turns and did not come to its end")
            raise Abandoned

    def _give_up(self, why: str) -> None:
        if not self.is_over:
            self.run.stuck = why
            self._end()

    def _end(self) -> None:
        """Say that it is over, to those too who still wait for a turn."""
        with self._ending:
            if self.is_over:
                return
            self.is_over = True
        for client in self._left:
            if self.racers[client].gate.locked():
                self.racers[client].gate.release()
        self._ended.release()

    def _why_stuck(self) -> str:
        waiting = sorted(self._waiting.items())
        if any(wait.is_timed for _, wait in waiting):
            each = "; ".join(f"client {client + 1} waits in {wait.access}" for client, wait in waiting)
            return f"nobody goes on: {each}, again and again"
        return "a deadlock: " + "; ".join(f"client {client + 1} waits {_for_what(wait)}" for client, wait in waiting)

    def _hanging(self) -> str:
        thread = self.racers[self._running]
        frame = sys._current_frames().get(thread.thread)
        line = self.line(frame)
        where = f", and is at {short(line)}: {line.text}" if line else ""
        return (
            f"client {thread.number + 1} did not come to its next turn, or to its end, in time{where}. What it waits "
            "for takes no turns: a lock does if it is made by setup or by a client, or kept by a module or class"
        )

    def line(self, frame: Any) -> SourceLine | None:
        """Give the innermost line of the code under test."""
        while frame is not None:
            code = frame.f_code
            if self.is_under_test(code.co_filename):
                return SourceLine(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name)
            frame = frame.f_back
        return None


class ScheduledThread:
    """A client's thread, to the relay."""

    def __init__(self, scheduler: ThreadScheduler, number: int) -> None:
        self.scheduler = scheduler
        self.number = number
        self.gate = _allocate()
        self.gate.acquire()
        self.thread = 0
        self.progress = ClientProgress()
        self.held: frozenset[tuple[int, bool]] = frozenset()
        """The locks that it has."""
        self.is_late = False
        """Whether it goes on because time has gone by."""
        self.has_rested = False
        """Whether its event loop has looked for what is ready, since it took a turn at an await."""

    def stand_by(self) -> None:
        """Wait until this client may go on."""
        self.gate.acquire()
        if self.scheduler.is_over:
            raise Abandoned

    def take(self, access: Access) -> None:
        """Wait for the turn of an operation that is about to be made."""
        self.scheduler.take(self, access)

    def access(self, kind: str, what: str = "", keys: frozenset[Key] = frozenset()) -> Access:
        """Say what is about to be done, and where."""
        line = self.scheduler.line(sys._getframe(1))
        return Access(kind, what or place(line), line, writes=MEMORY | keys, held=self.held)

    def sleep(self, seconds: float | None) -> None:
        """Let others go on instead of waiting: for a time, or for what they may do."""
        access = self.access("wait" if seconds is None else "sleep")
        self.take(access)
        self.scheduler.wait(self, Wait(access, is_timed=seconds is not None))
        self.scheduler.late += seconds or 0.0


class Here(threading.local):
    """What the running thread is to the lab."""

    scheduler: ThreadScheduler | None = None
    """The schedule that what is made in this thread belongs to."""
    client: ScheduledThread | None = None
    """The client that it is."""


here = Here()


def abandon(thread: int) -> None:
    """End a thread, as soon as it executes Python code again."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Abandoned))


def place(line: SourceLine | None) -> str:
    """Give a place in the code, as short as it can be told by."""
    return f"{os.path.basename(line.path)}:{line.number}" if line else ""


def _for_what(wait: Wait) -> str:
    lock = wait.lock
    if lock is None:
        return f"at {wait.access.path} for what nobody does"
    where = f"at {place(wait.access.line)} " if wait.access.line else ""
    holder = f", which client {lock.holder.number + 1} has" if lock.holder else ""
    return f"{where}for {lock}{holder}"
