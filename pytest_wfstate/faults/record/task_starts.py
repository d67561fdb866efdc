"""Tasks and timers that a run starts: whether something else can go on while a task of an event loop waits.

It need not have done anything in this run: a task that flushes now and then may not have had the time to.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import Any

from pytest_wfstate.faults.record.active import active

_Loop = asyncio.BaseEventLoop
_real_create_task = _Loop.create_task
_real_call_at = _Loop.call_at

_LIBRARIES = ("asyncio.", "trio.", "anyio.", "pytest_wfstate.faults.")
"""Their timers wake tasks up, or cancel them when their time is up."""


class StartedTasks:
    """The tasks that were started in a run, on each event loop."""

    def __init__(self) -> None:
        self._tasks: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()

    def add(self, loop: Any, task: Any) -> bool:
        """Take note of a task, and return whether another one of the run is there."""
        others = self._tasks.setdefault(loop, weakref.WeakSet())
        is_second = asyncio._get_running_loop() is loop and asyncio.current_task(loop) is not None
        is_second = is_second or any(not other.done() for other in others)
        others.add(task)
        return is_second


def is_timer_of_code(callback: Any) -> bool:
    """Whether a timer with this callback does something of its own, rather than wake a task up or cancel something."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    if isinstance(getattr(callback, "__self__", None), asyncio.Future):
        return False
    return not f"{getattr(callback, '__module__', None) or ''}.".startswith(_LIBRARIES)


def _create_task(self: Any, *args: Any, **kwargs: Any) -> Any:
    task = _real_create_task(self, *args, **kwargs)
    recorder = active.recorder
    if recorder is not None and not recorder.log.strands.are_several:
        recorder.log.strands.are_several = recorder.work.tasks.add(self, task)
    return task


def _call_at(self: Any, when: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
    recorder = active.recorder
    if recorder is not None and is_timer_of_code(callback):
        recorder.log.strands.are_several = True
    return _real_call_at(self, when, callback, *args, **kwargs)


def follow_tasks() -> None:
    """Make event loops report the tasks and timers that are started."""
    _Loop.create_task = _create_task  # type: ignore[method-assign]
    _Loop.call_at = _call_at  # type: ignore[method-assign,assignment]


def leave_tasks() -> None:
    """Restore what `follow_tasks` replaced."""
    _Loop.create_task = _real_create_task  # type: ignore[method-assign]
    _Loop.call_at = _real_call_at  # type: ignore[method-assign]
