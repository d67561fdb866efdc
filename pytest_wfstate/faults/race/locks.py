"""Scheduled locks: a client that would wait for one lets the scheduler run another client instead.

Conditions, events, semaphores, barriers and queues of the standard library are written in Python on top of locks, so
they work on these.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
from typing import Any

from pytest_wfstate.faults.race.schedule import OTHER_THREAD, Access
from pytest_wfstate.faults.race.thread_scheduler import ScheduledThread, ThreadScheduler, Wait, current, place

real_allocate, RealSimpleQueue = _thread.allocate_lock, queue.SimpleQueue
RealLock, RealRLock = type(real_allocate()), _thread.RLock

_WAIT = threading.Condition.wait.__code__


class _StandsIn(type):
    """Makes `isinstance` true for the real class too: objects made before it was replaced are still of that type."""

    real: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, cls.real)


class ScheduledLock(metaclass=_StandsIn):
    """A lock that clients try instead of waiting for it. In any other thread it is an ordinary lock."""

    real = RealLock
    __slots__ = ("__weakref__", "_lock", "_origin", "_scheduler", "holder", "is_known", "number")
    _lock: Any
    _origin: str
    _scheduler: ThreadScheduler
    holder: ScheduledThread | None
    is_known: bool
    """Whether it has the same number in all schedules, because it was made before the clients ran."""
    number: int

    def __new__(cls) -> Any:
        """Make one, or a real one for an import or in a thread that does not belong to a race."""
        frame = sys._getframe(1)
        scheduler = current.scheduler
        if scheduler is None or frame.f_globals.get("__name__") == "importlib._bootstrap":
            return real_allocate()
        kind = ConditionLock if frame.f_code is _WAIT else ScheduledLock
        return make_lock(kind, scheduler, _origin(scheduler, frame))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; return whether that succeeded."""
        thread = current.client
        if thread is None or (timeout != -1 and not blocking):  # the latter is an error
            self._note_outsider()
            return bool(self._lock.acquire(blocking, timeout))
        access = self._access("lock" if blocking and timeout < 0 else "try lock", thread)
        thread.step(access)
        if not self._wait(thread, access, blocking, timeout):
            return False
        self.holder = thread
        if self.is_known:
            thread.held |= {(self.number, True)}
        return True

    def release(self) -> None:
        """Release it. As with the real one, any thread may."""
        thread = current.client
        if thread is None:
            self._note_outsider()
        elif not thread.scheduler.is_over:
            thread.step(self._access("unlock", thread))
        self._lock.release()
        if self.holder is not None:
            self.holder.held -= {(self.number, True)}
            self.holder = None
        self._scheduler.released(self)

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __str__(self) -> str:
        return f"the lock {self._name}"

    def _at_fork_reinit(self) -> None:
        self._lock = real_allocate()

    @property
    def _name(self) -> str:
        return self._origin if self.number < 0 else f"{self.number}, {self._origin}".removesuffix(", ")

    def _wait(self, thread: ScheduledThread, access: Access, blocking: bool, timeout: float) -> bool:
        """Try it until it is free."""
        while not self._lock.acquire(False):
            if not blocking:
                return False
            if thread.scheduler.wait(thread, Wait(access, self, is_timed=timeout >= 0)):
                thread.let_pass(timeout)
                return False
        return True

    def _access(self, kind: str, thread: ScheduledThread) -> Access:
        return thread.access(kind, self._name, frozenset({("lock", self.number, "")}))

    def _note_outsider(self) -> None:
        scheduler = self._scheduler
        if scheduler.has_begun and current.scheduler is None and not scheduler.is_over:
            scheduler.note_unseen(OTHER_THREAD)


class ConditionLock(ScheduledLock):
    """The lock by which a condition wakes one waiting thread: that thread acquires it, the notifier releases it.

    No other thread knows it, so only waiting for it is a step.
    """

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it, or wait for the notification."""
        thread = current.client
        if thread is None or not self.locked():
            return bool(self._lock.acquire(blocking, timeout))
        access = self._access("wait", thread)
        thread.step(access)
        return self._wait(thread, access, blocking, timeout)

    def release(self) -> None:
        """Notify the waiting thread."""
        self._lock.release()
        self._scheduler.released(self)

    def __str__(self) -> str:
        return "a notification that never comes"


def make_lock(kind: type[ScheduledLock], scheduler: ThreadScheduler, origin: str, number: int = 0) -> ScheduledLock:
    """Make a lock for a scheduler; reports identify it by `origin`. Without a number it gets the next one."""
    lock: ScheduledLock = object.__new__(kind)
    lock._lock = real_allocate()
    lock._scheduler = scheduler
    lock._origin = origin
    lock.holder = None
    scheduler.locks += not number
    lock.number = number or scheduler.locks
    lock.is_known = not scheduler.has_begun
    return lock


def _origin(scheduler: ThreadScheduler, frame: Any) -> str:
    line = scheduler.line(frame)
    return f"made at {place(line)}" if line else ""


class ScheduledRLock(threading._RLock, metaclass=_StandsIn):  # type: ignore[misc]  # the one written in Python
    """A reentrant lock on top of a scheduled one."""

    real = RealRLock

    def __new__(cls) -> Any:
        """Make one, or a real one for an import or in a thread that does not belong to a race."""
        frame = sys._getframe(1)
        if current.scheduler is None or frame.f_globals.get("__name__") == "importlib._bootstrap":
            return RealRLock()
        return super().__new__(cls)

    def __init__(self) -> None:
        assert current.scheduler is not None
        self._begin(make_lock(ScheduledLock, current.scheduler, _origin(current.scheduler, sys._getframe(1))))

    @classmethod
    def on(cls, lock: ScheduledLock) -> ScheduledRLock:
        """Make one on top of a given lock."""
        reentrant: ScheduledRLock = object.__new__(cls)
        reentrant._begin(lock)
        return reentrant

    def _begin(self, lock: ScheduledLock) -> None:
        self._block = lock
        self._owner = None
        self._count = 0


class ScheduledQueue(metaclass=_StandsIn):
    """Stands in for `SimpleQueue`: the one written in C blocks in C, the one written in Python waits for a lock."""

    real = RealSimpleQueue

    def __new__(cls) -> Any:
        """Make one for a race, or a real one."""
        return RealSimpleQueue() if current.scheduler is None else queue._PySimpleQueue()  # type: ignore[attr-defined]
