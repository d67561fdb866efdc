"""Turns of tasks: make the tasks of an event loop go on in a certain order, as far as they can.

An event loop runs what is ready first come, first served. Here it runs the steps of the ready task with the smallest
rank only, and those of the others in a later round. It is the loop that the code under test uses, with its own timers
and sockets; loops that are not written in Python (uvloop) run as they like.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.trace.strands import MAIN, Strand

_MOST_ROUNDS = 100  # of a task without an item, after which it waits for another one
_NAP = 20  # rounds that a sleep counts for
_MOST_BEATS = 20  # sleeps of a task while others are held, after which it does something now and then
_MOST_HELD = 2_000  # rounds in a row in which a task is held
_SHORT = 1.0  # seconds: a task that sleeps for longer is not waited for

_Loop = asyncio.BaseEventLoop
_real_run_once = _Loop._run_once  # type: ignore[attr-defined]


class TaskTurns:
    """Lets the tasks of each event loop have their turns by rank; None leaves them as they are."""

    def __init__(self, rank: Callable[[Strand], tuple[Any, ...]] | None) -> None:
        self.rank = rank
        self.has_progress = False
        """Whether an item was done since this was last looked at."""
        self._rounds = 0
        self._held_rounds = 0
        self._strands: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
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
        held = self._held(loop)
        for handle in held:
            loop._ready.remove(handle)
        try:
            _real_run_once(loop)
        finally:
            loop._ready.extendleft(reversed(held))

    def _held(self, loop: Any) -> list[Any]:
        """Return the steps that are ready and whose turn it is not."""
        rank = self.rank
        if self.has_progress:
            self._rounds, self.has_progress = 0, False
        steps = [
            (handle, self._strand_of(task, loop))
            for handle in loop._ready
            if not handle.cancelled() and (task := _task_of(handle)) is not None
        ]
        if rank is None or not steps or self._rounds >= _MOST_ROUNDS or self._held_rounds >= _MOST_HELD:
            self._rounds = self._held_rounds = 0
            return []
        first = min([*self._about_to_wake_up(loop), *(strand for _, strand in steps)], key=rank)
        held = [handle for handle, strand in steps if rank(strand) > rank(first)]
        is_nap = len(held) == len(steps)
        first.beats += is_nap
        self._rounds += (_NAP if is_nap else 1) if held else 0
        self._held_rounds = self._held_rounds + 1 if held else 0
        return held

    def _about_to_wake_up(self, loop: Any) -> list[Strand]:
        """Return the tasks that only sleep, and not for long."""
        soon = loop.time() + _SHORT
        futures = {id(timer._args[0]) for timer in loop._scheduled if timer._args and timer._when <= soon}
        return [
            strand
            for task, strand in list(self._strands.items())
            if id(task._fut_waiter) in futures and strand.beats < _MOST_BEATS
        ]

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
