"""Turns of tasks: make the tasks of an event loop go on in a certain order, as far as they can.

An event loop runs what is ready first come, first served. Here it runs the steps of the ready task with the smallest
rank only, and those of the others in a later round. It is the loop that the code under test uses, with its own timers
and sockets; loops that are not written in Python (uvloop) run as they like.

The timers of a loop (`call_later`) are a strand, too. They are called in the order in which they are due, so they are
held together, those of sleeps included, and only while a task has something to do, as if that took no time. A task that
waits for a job in a thread has something to do as long as the job has, unless that sleeps.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Literal

from pytest_wfstate.faults.record.task_starts import is_timer_of_code
from pytest_wfstate.faults.trace.strands import MAIN, Strand

_MOST_ROUNDS = 100  # of a task without an item, after which it waits for another one
_NAP = 20  # rounds that a sleep counts for
_MOST_BEATS = 20  # sleeps of a task while others are held, after which it does something now and then
_MOST_HELD = 2_000  # rounds in a row in which a task is held
_MOST_LOOKS = 400  # at a job in a thread, until a task with something to do no longer waits for it
_LOOK_EVERY = 0.005  # seconds: long enough for the thread of the loop to count as blocked meanwhile
_SHORT = 1.0  # seconds: a task that sleeps for longer is not waited for
_BRIEF = 0.1  # seconds: a longer sleep counts for as many as it has of these

_Loop = asyncio.BaseEventLoop
_real_run_once = _Loop._run_once  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True, slots=True)
class _Nap:
    """A strand that goes on by itself."""

    strand: Strand
    seconds: float
    is_wait: bool
    """Whether it waits for something, and would go on earlier if that happens."""

    def holds(self, strand: Strand) -> bool:
        """Whether a strand may have to wait until the nap is over.

        That must not be what makes a task time out: one that waits a little longer holds only the main task.
        """
        return not self.is_wait or self.seconds <= _BRIEF or strand.name == MAIN


Activity = Literal["works", "sleeps", "rests"]
"""What a job in a thread does: if it rests, it does nothing until someone else does."""


class TaskTurns:
    """Lets the tasks of each event loop have their turns by rank; None leaves them as they are.

    `activity` returns what the job of a future does.
    """

    def __init__(
        self, rank: Callable[[Strand], tuple[Any, ...]] | None, activity: Callable[[Future[Any]], Activity]
    ) -> None:
        self.rank = rank
        self.is_looking = False
        """Whether an event loop waits only until it looks at a job again."""
        self._activity = activity
        self._looks = 0
        self.has_progress = False
        """Whether an item was done since this was last looked at."""
        self._rounds = 0
        self._held_rounds = 0
        self._strands: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self._timers = Strand("1")
        self._loops: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def on(self) -> None:
        """Begin. The tasks that a running loop has already are older than the run, but for the current one."""
        loop = asyncio._get_running_loop()
        if loop is not None:
            current = asyncio.current_task(loop)
            if current is not None:
                self._strand_of(current, loop)
            others = asyncio.all_tasks(loop) - {current}
            for number, task in enumerate(sorted(others, key=asyncio.Task.get_name), 1):
                self._strands[task] = Strand(str(number), is_older=True)
        _Loop._run_once = lambda loop: self._run_once(loop)  # type: ignore[attr-defined]

    def off(self) -> None:
        """Let all tasks go on as they like."""
        _Loop._run_once = _real_run_once  # type: ignore[attr-defined]

    def _run_once(self, loop: Any) -> None:
        held, scheduled = self._held(loop)
        for handle in held:
            loop._ready.remove(handle)
        if scheduled:
            loop._scheduled = []
        look = loop.call_later(_LOOK_EVERY, _nothing) if self.is_looking else None
        try:
            _real_run_once(loop)
        finally:
            self.is_looking = False
            if look is not None:
                look.cancel()
            loop._ready.extendleft(reversed(held))
            for timer in scheduled:
                heapq.heappush(loop._scheduled, timer)

    def _held(self, loop: Any) -> tuple[list[Any], list[Any]]:
        """Return the steps that are ready and whose turn it is not, and the timers that are not to become ready."""
        rank = self.rank
        if self.has_progress:
            self._rounds, self.has_progress = 0, False
        steps = [
            (handle, self._strand_of(task, loop))
            for handle in loop._ready
            if not handle.cancelled() and (task := _task_of(handle)) is not None
        ]
        has_timers = any(map(_is_timer, loop._scheduled))
        is_enough = self._rounds >= _MOST_ROUNDS or self._held_rounds >= _MOST_HELD
        if rank is None or not (steps or has_timers) or is_enough:
            self._rounds = self._held_rounds = 0
            return [], []
        naps = sorted(self._naps(loop), key=lambda nap: rank(nap.strand))
        jobs = self._jobs()

        def is_held(strand: Strand) -> bool:
            before = [*(other for _, other in steps), *jobs, *(nap.strand for nap in naps if nap.holds(strand))]
            return any(rank(other) < rank(strand) for other in before)

        held = [handle for handle, strand in steps if is_held(strand)]
        working = [strand for strand, activity in jobs.items() if activity == "works"]
        working += [strand for handle, strand in steps if handle not in held]
        hold_timers = has_timers and any(rank(strand) < rank(self._timers) for strand in working)
        scheduled = list(loop._scheduled) if hold_timers else []
        is_nap = bool(steps) and len(held) == len(steps)
        if is_nap or not steps:
            first = min((strand for _, strand in steps), key=rank, default=self._timers)
            self.is_looking = any(rank(job) < rank(first) for job in jobs) and bool(held or scheduled)
        self._looks = self._looks + 1 if self.is_looking else 0
        if self.is_looking:
            return held, scheduled
        if is_nap:
            nap = next(nap for nap in naps if nap.holds(first))
            nap.strand.beats += max(1, nap.seconds / _BRIEF)
        is_round = bool(held or scheduled)
        self._rounds += (_NAP if is_nap else 1) if is_round else 0
        self._held_rounds = self._held_rounds + 1 if is_round else 0
        return held, scheduled

    def _jobs(self) -> dict[Strand, Activity]:
        """Return the tasks that wait for jobs in threads which have something to do."""
        if self._looks >= _MOST_LOOKS:
            return {}
        jobs = ((strand, _job_of(task)) for task, strand in list(self._strands.items()) if not strand.is_older)
        waiting = {strand: self._activity(job) for strand, job in jobs if job is not None}
        return {strand: activity for strand, activity in waiting.items() if activity != "rests"}

    def _naps(self, loop: Any) -> Iterator[_Nap]:
        """Yield the tasks and the timers that only sleep, and not for long."""
        soon = {timer: timer._when - loop.time() for timer in loop._scheduled if not timer.cancelled()}
        soon = {timer: seconds for timer, seconds in soon.items() if seconds <= _SHORT}
        waking = {id(woken): (timer, seconds) for timer, seconds in soon.items() for woken in _woken_by(timer)}
        for task, strand in list(self._strands.items()):
            timer, seconds = waking.get(id(task)) or waking.get(id(task._fut_waiter)) or (None, 0.0)
            if timer is not None and task._fut_waiter is not None and strand.beats < _MOST_BEATS:
                yield _Nap(strand, seconds, is_wait=not _is_sleep(timer))
        due = [seconds for timer, seconds in soon.items() if _is_timer(timer)]
        if due and self._timers.beats < _MOST_BEATS:
            yield _Nap(self._timers, min(due), is_wait=True)

    def _strand_of(self, task: Any, loop: Any) -> Strand:
        strand = self._strands.get(task)
        if strand is None:
            number = self._loops[loop] = self._loops.get(loop, -1) + 1
            strand = self._strands[task] = Strand(str(number) if number else MAIN)
        return strand


def _task_of(handle: Any) -> Any:
    """Return the task of which a handle is the next step, if it is one."""
    owner = getattr(handle._callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def _job_of(task: Any) -> Future[Any] | None:
    """Return the job in a thread that a task waits for, maybe because another task does that it waits for."""
    waiter = task._fut_waiter
    while isinstance(waiter, asyncio.Task):
        waiter = waiter._fut_waiter  # type: ignore[attr-defined]
    for callback, _ in getattr(waiter, "_callbacks", None) or ():
        if f"{getattr(callback, '__module__', None)}.".startswith(
            "asyncio."
        ):  # `wrap_future` keeps the job in a closure
            for cell in getattr(callback, "__closure__", None) or ():
                if isinstance(cell.cell_contents, Future):
                    return cell.cell_contents
    return None


def _nothing() -> None: ...


def _is_timer(timer: Any) -> bool:
    """Whether a timer is one of the code under test."""
    return not timer.cancelled() and is_timer_of_code(timer._callback)


def _woken_by(timer: Any) -> list[Any]:
    """Return the task that a timer interrupts, or else the future for which a task may be waiting."""
    owner = getattr(timer._callback, "__self__", None)
    if isinstance(owner, asyncio.Timeout):
        return [owner._task]  # type: ignore[attr-defined]
    return list(timer._args[:1])


def _is_sleep(timer: Any) -> bool:
    """Whether a timer wakes up whoever sleeps, and nothing else does."""
    return getattr(timer._callback, "__name__", "") == "_set_result_unless_cancelled"
