"""Stand-ins for the calls in which a client's process waits: for a time, or for another of its threads.

Nothing happens while it waits for a time, since the other clients are stopped. So it lets them run instead, and its
clock skips the time. Likewise, what none of its own threads can end is a wait for a time, or a hang.
"""

from __future__ import annotations

import _thread
import dataclasses
import functools
import queue
import select
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_wfstate.faults.race.clocks import ClockStandIns, VirtualClock
from pytest_wfstate.faults.race.file_steps import FileSteps
from pytest_wfstate.faults.source_lines import SourceLine, is_users, users_line

T = TypeVar("T")
_SLICE = 0.01  # seconds for which a thread waits before it looks again whether the others wait as well
_IDLE = 3  # looks in a row at which all threads wait, before that is a hang
_REST = 0.001  # seconds that a client lets pass if it polls without a pause

_real_sleep, _real_select, _RealPoll = time.sleep, select.select, select.poll
_real_allocate = _thread.allocate_lock
_real_join, _real_sigtimedwait = threading.Thread.join, signal.sigtimedwait
_RealEpoll = getattr(select, "epoll", None)
_SELECTORS = [
    getattr(selectors, name) for name in ("SelectSelector", "PollSelector", "EpollSelector") if hasattr(selectors, name)
]


@dataclasses.dataclass(frozen=True, slots=True)
class PendingWait:
    """A thread that waits for another thread of its process."""

    is_over: Callable[[], bool]
    is_timed: bool


class ProcessWaits:
    """All waits of a client's process."""

    def __init__(self, steps: FileSteps) -> None:
        self._steps = steps
        steps.rest = lambda: self.sleep(_REST)
        self._pending: dict[int, PendingWait] = {}
        self.clock = VirtualClock()

    @property
    def is_on(self) -> bool:
        """Whether the client is running."""
        return self._steps.is_on and not self._steps.is_looking

    def sleep(self, seconds: float, waited: float = 0.0) -> None:
        """Let others run instead of sleeping, for as long as it has not really waited already."""
        self.clock.sleep(seconds, self._steps.sleep(waited))

    def wait(self, poll: Callable[[float], T], is_over: Callable[[], bool], timeout: float | None) -> T:
        """Wait until another thread of this process ends the wait, or until all of them wait: then time passes."""
        found = poll(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        thread = threading.get_ident()
        self._pending[thread] = PendingWait(is_over, timeout is not None)
        try:
            found = self._wait_for_threads(poll, timeout)
        finally:
            del self._pending[thread]
        if not found and timeout is not None:
            self.sleep(timeout)
            found = poll(0)
        return found

    def _wait_for_threads(self, poll: Callable[[float], T], timeout: float | None) -> T:
        """Wait as long as another thread may end the wait."""
        waited, idle = 0.0, 0
        # A thread may wait in a call that is not replaced, and look as if it ran; so the timeout is a real one too.
        while timeout is None or waited < timeout:
            may_end = self._others_run()
            if not may_end and timeout is not None:
                break
            found = poll(_SLICE)
            if found:
                return found
            waited += 0.0 if self._steps.is_stopped else _SLICE
            idle = 0 if may_end or any(pending.is_timed for pending in self._pending.values()) else idle + 1
            if idle >= _IDLE and threading.current_thread() is threading.main_thread():  # which waits as well
                self._steps.hang(_awaiting_line() or users_line())
        return poll(0)

    def wait_outside(self, poll: Callable[[float | None], T], timeout: float | None) -> T:
        """Wait really, for something outside this process. If it does not come, that was a sleep.

        It may also be another thread that is waited for, so the time begins only when none can go on.
        """
        if timeout is None or timeout <= 0:
            return poll(timeout)
        found = self._wait_for_threads(poll, timeout) or poll(timeout)
        if not found:
            self.sleep(timeout, timeout)
            found = poll(0)
        return found

    def _others_run(self) -> bool:
        """Whether another thread of this process can go on."""
        own = threading.get_ident()
        others = (self._pending.get(thread.ident or 0) for thread in threading.enumerate() if thread.ident != own)
        return any(pending is None or pending.is_over() for pending in others)


def _awaiting_line() -> SourceLine | None:
    """Return the line at which a task of the running event loop awaits something, if a loop runs."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio and asyncio._get_running_loop()
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()) if asyncio and loop else []
    lines: list[SourceLine] = []
    for task in tasks:
        awaited = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            if is_users(frame.f_code.co_filename):
                lines.append(SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            awaited = awaited.cr_await
    return lines[-1] if lines else None


_current: ProcessWaits | None = None


def _waits() -> ProcessWaits | None:
    return _current if _current is not None and _current.is_on else None


def _clock() -> VirtualClock | None:
    waits = _waits()
    return None if waits is None else waits.clock


def _sleep(seconds: float, /) -> None:
    waits = _waits()
    if waits is None or not seconds >= 0:
        return _real_sleep(seconds)
    waits.sleep(seconds)
    return None


def _select(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:
    waits = _waits()
    if waits is None or timeout is None:
        return _real_select(rlist, wlist, xlist, timeout)
    if not (rlist or wlist or xlist):
        waits.sleep(timeout)
        return [], [], []

    def poll(seconds: float | None) -> Any:
        ready = _real_select(rlist, wlist, xlist, seconds)
        return ready if any(ready) else None

    return waits.wait_outside(poll, timeout) or ([], [], [])


def _sigtimedwait(sigset: Any, timeout: float, /) -> Any:
    waits = _waits()
    if waits is None:
        return _real_sigtimedwait(sigset, timeout)
    return waits.wait_outside(lambda seconds: _real_sigtimedwait(sigset, min(seconds or 0.0, _SLICE)), timeout)


class SteppedPoll:
    """Stands in for what `select.poll` returns."""

    def __init__(self) -> None:
        self._poll = _RealPoll()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)

    def poll(self, timeout: float | None = None, /) -> Any:
        """Poll, as the real one does; `timeout` is in milliseconds."""
        waits = _waits()
        if waits is None or timeout is None or timeout <= 0:
            return self._poll.poll(timeout)
        return waits.wait_outside(lambda seconds: self._poll.poll((seconds or 0) * 1000), timeout / 1000)


class SteppedEpoll:
    """Stands in for `select.epoll`."""

    def __init__(self, sizehint: int = -1, flags: int = 0) -> None:
        self._epoll: Any = _RealEpoll(sizehint, flags)  # type: ignore[misc]

    @classmethod
    def fromfd(cls, fd: int, /) -> SteppedEpoll:
        """Return one for a descriptor."""
        new = cls.__new__(cls)
        new._epoll = _RealEpoll.fromfd(fd)  # type: ignore[union-attr]
        return new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def __enter__(self) -> SteppedEpoll:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> Any:
        """Poll, as the real one does."""
        waits = _waits()
        is_selector = sys._getframe(1).f_globals.get("__name__") == "selectors"  # its own stand-in knows more
        if waits is None or is_selector or timeout is None or timeout <= 0:
            return self._epoll.poll(timeout, maxevents)
        return waits.wait_outside(lambda seconds: self._epoll.poll(seconds, maxevents), timeout)


def _selecting(real: Callable[..., Any]) -> Callable[..., Any]:
    def _select(self: Any, timeout: float | None = None) -> Any:
        waits = _waits()
        if waits is None:
            return real(self, timeout)
        if _is_inside(self):
            return waits.wait(functools.partial(real, self), lambda: bool(real(self, 0)), timeout)
        return waits.wait_outside(functools.partial(real, self), timeout)

    return _select


def _is_inside(selector: Any) -> bool:
    """Whether a selector watches at most the pipe by which other threads wake an event loop."""
    callbacks = [
        getattr(key.data[0], "_callback", None) if isinstance(key.data, tuple) else None
        for key in selector.get_map().values()
    ]
    return all(getattr(callback, "__name__", "") == "_read_from_self" for callback in callbacks)


class WaitingLock:
    """A lock whose waits end when none of the process's threads can end them."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = _real_allocate()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; return whether that succeeded."""
        waits = _waits()
        if waits is None or not blocking or timeout < -1:
            return self._lock.acquire(blocking, timeout)
        return waits.wait(self._poll, lambda: not self._lock.locked(), None if timeout < 0 else timeout)

    __enter__ = acquire

    def release(self) -> None:
        """Release it."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return self._lock.locked()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _poll(self, seconds: float) -> bool:
        return self._lock.acquire(timeout=seconds) if seconds else self._lock.acquire(False)

    def _at_fork_reinit(self) -> None:
        self._lock = _real_allocate()


def _allocate() -> Any:
    is_import = sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
    return _real_allocate() if _current is None or is_import else WaitingLock()


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    waits = _waits()
    if waits is None or not self.is_alive() or self is threading.current_thread():
        return _real_join(self, timeout)

    def poll(seconds: float) -> bool:
        _real_join(self, seconds)
        return not self.is_alive()

    # A thread that ends is gone from the list of threads before it counts as dead.
    waits.wait(poll, lambda: self not in threading.enumerate(), None if timeout is None else max(0.0, timeout))
    return None


_clocks = ClockStandIns(_clock)
STAND_INS: list[tuple[Any, Any]] = [
    *_clocks.pairs(),
    (_real_sleep, _sleep),
    (_real_select, _select),
    (_RealPoll, SteppedPoll),
    *([(_RealEpoll, SteppedEpoll)] if _RealEpoll else []),
    (_real_sigtimedwait, _sigtimedwait),
    (_real_allocate, _allocate),
    (queue.SimpleQueue, queue._PySimpleQueue),  # type: ignore[attr-defined]  # the one written in C waits in C
    *([(threading.Lock, _allocate)] if threading.Lock is not _real_allocate else []),
]
"""Pairs of a real call and its stand-in."""


def install_waits(steps: FileSteps) -> None:
    """Make the waits of this process those of a client, for good. `STAND_INS` must be rebound as well."""
    global _current
    _current = ProcessWaits(steps)
    threading.Thread.join = _join  # type: ignore[method-assign]
    for owner in _SELECTORS:
        owner.select = _selecting(owner.select)
    _clocks.install_dates()


def reset_clock() -> None:
    """Let the client see the real time again, as its run begins."""
    if _current is not None:
        _current.clock.reset()
