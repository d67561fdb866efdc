"""Stand-ins for every call in which a thread would block: locks, sleeps, clocks, event loops, and work for others.

A client that would block lets the scheduler run another one. What the scheduler cannot interleave is noted: work in
other threads, and locks on files.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import selectors
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_wfstate.faults.race.clocks import ClockStandIns
from pytest_wfstate.faults.race.file_locks import TESTS, TRIES
from pytest_wfstate.faults.race.locks import (
    RealRLock,
    RealSimpleQueue,
    ScheduledLock,
    ScheduledQueue,
    ScheduledRLock,
    real_allocate,
)
from pytest_wfstate.faults.race.schedule import OTHER_THREAD
from pytest_wfstate.faults.race.thread_scheduler import Abandoned, current
from pytest_wfstate.faults.record.rebind import Rebinding

_real_sleep, _real_wait = time.sleep, threading.Condition.wait
_real_flock, _real_lockf, _real_fcntl, _real_os_lockf = fcntl.flock, fcntl.lockf, fcntl.fcntl, os.lockf
_real_threadsafe = asyncio.run_coroutine_threadsafe
_Selector = selectors.DefaultSelector
_real_select = _Selector.select
_real_run_in_executor = asyncio.BaseEventLoop.run_in_executor
_real_start, _real_submit = threading.Thread.start, ThreadPoolExecutor.submit

_FILE_LOCK = "a file lock, which does not exclude threads (race clients that share files without `by`)"


def _sleep(seconds: float, /) -> None:
    thread, clock = current.client, current.clock
    if clock is None or not seconds >= 0:
        _real_sleep(seconds)
    elif thread is None:
        clock.sleep(seconds)
    else:
        thread.sleep(seconds)


def _wait(self: threading.Condition, timeout: float | None = None) -> bool:
    """Let the time of a wait pass in a thread with tasks, where it is a real one."""
    is_notified = _real_wait(self, timeout)
    if not is_notified and timeout is not None and timeout > 0 and current.tasks_clock is not None:
        current.tasks_clock.sleep(timeout)
    return is_notified


def _select(self: Any, timeout: float | None = None) -> Any:
    """Stand in for the call in which an event loop waits."""
    thread = current.client
    if thread is None:
        return _real_select(self, timeout)
    thread.has_polled = True
    ready = _real_select(self, 0)
    if not ready and (timeout is None or timeout > 0):
        thread.sleep(timeout)
        ready = _real_select(self, 0)
    return ready


def _run_in_executor(self: Any, executor: Any, func: Any, *args: Any) -> Any:
    """Run at once, in the client's own thread, what its event loop would hand to another thread."""
    if current.client is None:
        return _real_run_in_executor(self, executor, func, *args)
    future = self.create_future()
    try:
        future.set_result(func(*args))
    except (SystemExit, KeyboardInterrupt, Abandoned):
        raise
    except BaseException as error:
        future.set_exception(error)
    return future


def _noting_handoff(real: Any) -> Any:
    def noting(*args: Any, **kwargs: Any) -> Any:
        if current.scheduler is not None:
            current.scheduler.note_unseen(OTHER_THREAD)
        return real(*args, **kwargs)

    return noting


def _start(self: threading.Thread) -> None:
    """Start a thread outside the schedule: its locks are real, so whoever waits for it really waits."""
    scheduler, client = current.scheduler, current.client
    if scheduler is None:
        return _real_start(self)
    scheduler.note_unseen(OTHER_THREAD)
    current.scheduler, current.client = None, None
    try:
        self._started = threading.Event()  # type: ignore[attr-defined]
        return _real_start(self)
    finally:
        current.scheduler, current.client = scheduler, client


def _flock(fd: Any, operation: int, /) -> Any:
    return _real_flock(fd, _without_waiting(operation))


def _lockf(fd: Any, cmd: int, /, *args: Any) -> Any:
    return _real_lockf(fd, _without_waiting(cmd), *args)


def _fcntl(fd: Any, cmd: int, arg: Any = 0, /) -> Any:
    is_lock = cmd in TESTS or cmd in TRIES or cmd in TRIES.values()
    return _real_fcntl(fd, TRIES.get(cmd, cmd) if is_lock and _noted_lock() else cmd, arg)


def _os_lockf(fd: int, command: int, length: int, /) -> Any:
    return _real_os_lockf(fd, os.F_TLOCK if _noted_lock() and command == os.F_LOCK else command, length)


def _without_waiting(operation: int) -> int:
    return operation | fcntl.LOCK_NB if _noted_lock() and not operation & fcntl.LOCK_UN else operation


def _noted_lock() -> bool:
    """Note a lock on a file, if a client makes it; it must fail rather than wait, since its holder is not running."""
    if current.client is not None:
        current.client.scheduler.note_unseen(_FILE_LOCK)
    return current.client is not None


_clocks = ClockStandIns(lambda: current.clock)
_STAND_INS: list[tuple[Any, Any]] = [
    (real_allocate, ScheduledLock),
    (threading.Lock, ScheduledLock),
    (threading.RLock, ScheduledRLock),
    (RealRLock, ScheduledRLock),
    (RealSimpleQueue, ScheduledQueue),
    (_real_sleep, _sleep),
    *_clocks.pairs(),
    (_real_flock, _flock),
    (_real_lockf, _lockf),
    (_real_fcntl, _fcntl),
    (_real_os_lockf, _os_lockf),
    (_real_threadsafe, _noting_handoff(_real_threadsafe)),
]
_METHODS: list[tuple[Any, str, Any]] = [
    (threading.Condition, "wait", _wait),
    (_Selector, "select", _select),
    (asyncio.BaseEventLoop, "run_in_executor", _run_in_executor),
    (threading.Thread, "start", _start),
    (ThreadPoolExecutor, "submit", _noting_handoff(_real_submit)),
]
_rebinding = Rebinding()
_MEASURING = {id(time.perf_counter), id(time.perf_counter_ns)}
"""Libraries hold these to measure themselves; a client that waits until a deadline seldom does."""


class BlockingPatches:
    """Keeps the stand-ins in place from `replace` until `restore`."""

    def __init__(self) -> None:
        self._undo: contextlib.ExitStack | None = None

    def replace(self) -> None:
        """Put the stand-ins in place."""
        if self._undo is not None:
            return
        self._undo = contextlib.ExitStack()
        _rebinding.do(_rebinding.find(_STAND_INS, incidental=_MEASURING))
        self._undo.callback(_rebinding.undo)
        for owner, name, stand_in in _METHODS:
            self._undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        self._undo.callback(_clocks.install_dates())

    def restore(self) -> None:
        """Put the originals back."""
        if self._undo is not None:
            self._undo.close()
            self._undo = None
