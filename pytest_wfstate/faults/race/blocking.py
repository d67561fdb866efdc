"""Whatever a thread waits in, so that it takes turns instead: locks, sleeps, event loops, and what is built on them.

Conditions, events, semaphores, barriers and queues of the standard library are written in Python on top of locks, so
locks are all that is replaced for them. What cannot take turns, work in other threads and locks on files, is noted.
"""

from __future__ import annotations

import _thread
import asyncio
import fcntl
import queue
import selectors
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_wfstate.faults.race.schedule import Access
from pytest_wfstate.faults.race.thread_scheduler import Abandoned, ScheduledThread, ThreadScheduler, Wait, here, place
from pytest_wfstate.faults.record.rebind import Rebinding

_allocate, _real_simple_queue = _thread.allocate_lock, queue.SimpleQueue
RealLock, RealRLock = type(_allocate()), _thread.RLock
_real_sleep, _real_monotonic = time.sleep, time.monotonic
_real_flock, _real_lockf = fcntl.flock, fcntl.lockf
_real_threadsafe = asyncio.run_coroutine_threadsafe
_Selector = selectors.DefaultSelector
_real_select = _Selector.select
_real_run_in_executor = asyncio.BaseEventLoop.run_in_executor
_real_start, _real_submit = threading.Thread.start, ThreadPoolExecutor.submit

_WAIT = threading.Condition.wait.__code__
_HANDED_ON = "work that is handed to another thread"
_FILE_LOCK = "a lock on a file, which is no lock between threads: clients that share files are given a folder"


class _StandsIn(type):
    """Takes the real thing for ours as well: while we stand in for it, older ones are still what they were."""

    real: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, cls.real)


class Lock(metaclass=_StandsIn):
    """A lock that a client tries, instead of waiting for it. To who is no client it is an ordinary one."""

    real = RealLock
    __slots__ = ("__weakref__", "_lock", "_origin", "_relay", "holder", "is_known", "number")
    _lock: Any
    _origin: str
    _relay: ThreadScheduler
    holder: ScheduledThread | None
    is_known: bool
    """Whether it has the same number in all schedules, since it was made before the clients ran."""
    number: int

    def __new__(cls) -> Any:
        """Make one, or a real one in a thread that has nothing to do with a race, or for an import."""
        frame = sys._getframe(1)
        scheduler = here.scheduler
        if scheduler is None or frame.f_globals.get("__name__") == "importlib._bootstrap":
            return _allocate()
        kind = ConditionLock if frame.f_code is _WAIT else Lock
        return made(kind, scheduler, _origin(scheduler, frame))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get it, and tell whether that was possible."""
        thread = here.client
        if thread is None or (timeout != -1 and not blocking):  # the latter is an error
            self._look_outside()
            return bool(self._lock.acquire(blocking, timeout))
        access = self._touch("lock" if blocking and timeout < 0 else "try lock", thread)
        thread.take(access)
        if not self._wait(thread, access, blocking, timeout):
            return False
        self.holder = thread
        if self.is_known:
            thread.held |= {(self.number, True)}
        return True

    def release(self) -> None:
        """Let others have it. As with the real one, anybody may."""
        thread = here.client
        if thread is None:
            self._look_outside()
        elif not thread.scheduler.is_over:
            thread.take(self._touch("unlock", thread))
        self._lock.release()
        if self.holder is not None:
            self.holder.held -= {(self.number, True)}
            self.holder = None
        self._relay.released(self)

    def locked(self) -> bool:
        """Tell whether somebody has it."""
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __str__(self) -> str:
        return f"the lock {self._name}"

    def _at_fork_reinit(self) -> None:
        self._lock = _allocate()

    @property
    def _name(self) -> str:
        return self._origin if self.number < 0 else f"{self.number}, {self._origin}".removesuffix(", ")

    def _wait(self, thread: ScheduledThread, access: Access, blocking: bool, timeout: float) -> bool:
        """Try it until it is given."""
        while not self._lock.acquire(False):
            if not blocking:
                return False
            if thread.scheduler.wait(thread, Wait(access, self, is_timed=timeout >= 0)):
                thread.scheduler.late += timeout
                return False
        return True

    def _touch(self, kind: str, thread: ScheduledThread) -> Access:
        return thread.access(kind, self._name, frozenset({("lock", self.number, "")}))

    def _look_outside(self) -> None:
        scheduler = self._relay
        if scheduler.has_begun and here.scheduler is None and not scheduler.is_over:
            scheduler.cannot_see(_HANDED_ON)


class ConditionLock(Lock):
    """The lock by which a condition tells one thread that waits for it: taken by that one, and freed by another.

    Nobody else knows it, so a turn is taken only where it is waited for.
    """

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, or wait for it."""
        thread = here.client
        if thread is None or not self.locked():
            return bool(self._lock.acquire(blocking, timeout))
        access = self._touch("wait", thread)
        thread.take(access)
        return self._wait(thread, access, blocking, timeout)

    def release(self) -> None:
        """Give notice."""
        self._lock.release()
        self._relay.released(self)

    def __str__(self) -> str:
        return "a notice that nobody gives"


def made(kind: type[Lock], scheduler: ThreadScheduler, origin: str, number: int = 0) -> Lock:
    """Make a lock that takes turns in a relay; `origin` is what to tell it by. Without a number it gets the next."""
    lock: Lock = object.__new__(kind)
    lock._lock = _allocate()
    lock._relay = scheduler
    lock._origin = origin
    lock.holder = None
    scheduler.locks += not number
    lock.number = number or scheduler.locks
    lock.is_known = not scheduler.has_begun
    return lock


def _origin(scheduler: ThreadScheduler, frame: Any) -> str:
    line = scheduler.line(frame)
    return f"made at {place(line)}" if line else ""


class RLock(threading._RLock, metaclass=_StandsIn):  # type: ignore[misc]  # the one that is written in Python
    """A lock that its owner may have several times, on top of one that takes turns."""

    real = RealRLock

    def __new__(cls) -> Any:
        """Make one, or a real one in a thread that has nothing to do with a race, or for an import."""
        frame = sys._getframe(1)
        if here.scheduler is None or frame.f_globals.get("__name__") == "importlib._bootstrap":
            return RealRLock()
        return super().__new__(cls)

    def __init__(self) -> None:
        assert here.scheduler is not None
        self._begin(made(Lock, here.scheduler, _origin(here.scheduler, sys._getframe(1))))

    @classmethod
    def on(cls, lock: Lock) -> RLock:
        """Make one on top of a lock."""
        reentrant: RLock = object.__new__(cls)
        reentrant._begin(lock)
        return reentrant

    def _begin(self, lock: Lock) -> None:
        self._block = lock
        self._owner = None
        self._count = 0


class SimpleQueue(metaclass=_StandsIn):
    """A queue: the one written in C waits where no turns can be taken, the one written in Python does not."""

    real = _real_simple_queue

    def __new__(cls) -> Any:
        """Make one for a race, or a real one."""
        return _real_simple_queue() if here.scheduler is None else queue._PySimpleQueue()  # type: ignore[attr-defined]


def _sleep(seconds: float, /) -> None:
    thread = here.client
    if thread is None:
        _real_sleep(seconds)
    else:
        thread.sleep(seconds)


def _monotonic() -> float:
    scheduler = here.scheduler
    return _real_monotonic() + (scheduler.late if scheduler else 0.0)


def _select(self: Any, timeout: float | None = None) -> Any:
    """Stand in for what an event loop waits in."""
    thread = here.client
    if thread is None:
        return _real_select(self, timeout)
    thread.has_rested = True
    ready = _real_select(self, 0)
    if not ready and (timeout is None or timeout > 0):
        thread.sleep(timeout)
        ready = _real_select(self, 0)
    return ready


def _run_in_executor(self: Any, executor: Any, func: Any, *args: Any) -> Any:
    """Do at once, in the client's own thread, what its event loop would have another thread do."""
    if here.client is None:
        return _real_run_in_executor(self, executor, func, *args)
    future = self.create_future()
    try:
        future.set_result(func(*args))
    except (SystemExit, KeyboardInterrupt, Abandoned):
        raise
    except BaseException as error:
        future.set_exception(error)
    return future


def _hands_on(real: Any) -> Any:
    def hand_on(*args: Any, **kwargs: Any) -> Any:
        if here.scheduler is not None:
            here.scheduler.cannot_see(_HANDED_ON)
        return real(*args, **kwargs)

    return hand_on


def _start(self: threading.Thread) -> None:
    """Start a thread as if there were no race: who starts it waits for it, and it takes no turns."""
    scheduler, client = here.scheduler, here.client
    if scheduler is None:
        return _real_start(self)
    scheduler.cannot_see(_HANDED_ON)
    here.scheduler, here.client = None, None
    try:
        self._started = threading.Event()  # type: ignore[attr-defined]
        return _real_start(self)
    finally:
        here.scheduler, here.client = scheduler, client


def _flock(fd: Any, operation: int, /) -> Any:
    return _real_flock(fd, _at_once(operation))


def _lockf(fd: Any, cmd: int, /, *args: Any) -> Any:
    return _real_lockf(fd, _at_once(cmd), *args)


def _at_once(operation: int) -> int:
    """Note a lock on a file, and have it fail rather than wait: whoever has it waits for its turn."""
    if here.client is None:
        return operation
    here.client.scheduler.cannot_see(_FILE_LOCK)
    return operation if operation & fcntl.LOCK_UN else operation | fcntl.LOCK_NB


_STAND_INS: list[tuple[Any, Any]] = [
    (_allocate, Lock),
    (threading.Lock, Lock),
    (threading.RLock, RLock),
    (RealRLock, RLock),
    (_real_simple_queue, SimpleQueue),
    (_real_sleep, _sleep),
    (_real_monotonic, _monotonic),
    (_real_flock, _flock),
    (_real_lockf, _lockf),
    (_real_threadsafe, _hands_on(_real_threadsafe)),
]
_METHODS: list[tuple[Any, str, Any]] = [
    (_Selector, "select", _select),
    (asyncio.BaseEventLoop, "run_in_executor", _run_in_executor),
    (threading.Thread, "start", _start),
    (ThreadPoolExecutor, "submit", _hands_on(_real_submit)),
]
_rebinding = Rebinding()


class Waits:
    """Has clients take turns wherever they would wait, from `replace` until `restore`."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def replace(self) -> None:
        """Put the stand-ins in place."""
        if self._before:
            return
        _rebinding.do(_rebinding.find(_STAND_INS), sys._getframe(1))
        for owner, name, stand_in in _METHODS:
            self._before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, stand_in)

    def restore(self) -> None:
        """Put back what was there."""
        if not self._before:
            return
        while self._before:
            owner, name, before = self._before.pop()
            setattr(owner, name, before)
        _rebinding.undo()
