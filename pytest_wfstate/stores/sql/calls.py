"""Calls: whatever a call holds, it holds in its own name, and it is free when the call ends, however it ends.

A signal handler may raise an exception between any two lines (Ctrl-C, `signal.alarm`, pytest-timeout), at the first
line of a `finally` too. So nothing here relies on one piece of code that runs at the end. A call is a lock that a
`with` statement holds: the interpreter itself releases it, and cannot be interrupted there. A place in a queue belongs
to a call, and whoever waits behind a call that has ended takes no notice of it. What has to be given back at once is
given back twice, so that one exception cannot prevent both.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

_LOOK = 0.05
"""Seconds after which a waiting call looks for itself: an interrupted call may have woken nobody."""


class Held(Protocol):
    """Something that a call holds, or was about to take."""

    def release(self, call: Call) -> None:
        """Release what the call holds of it. Releasing twice, or before it was taken, does nothing."""


class Call:
    """One call of a store's method: the owner of what it holds."""

    __slots__ = ("bell", "held", "lock", "thread")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Locked while the call is in progress."""
        self.thread = threading.get_ident()
        self.bell: threading.Lock | None = None
        """Rung, by releasing it, to wake the call."""
        self.held: list[Held] = []
        """What is released at the end. Add something before you take it: what is taken can then not be forgotten."""

    def end(self) -> None:
        """Release everything, the last first. Doing so again completes what an exception cut short."""
        held = self.held
        while held:
            held[-1].release(self)
            held.pop()

    def wait(self) -> bool:
        """Wait to be woken, or for a moment. Return whether it was woken."""
        bell = self.bell
        return bell is None or bell.acquire(timeout=_LOOK)

    def wake(self) -> None:
        """Wake the call if it waits. The caller sees to it that no other thread does so at the same time."""
        bell, self.bell = self.bell, None
        if bell is not None:
            bell.release()

    def sleeps(self) -> None:
        """Have the next `wait` wait for the next `wake`."""
        bell = threading.Lock()
        bell.acquire()
        self.bell = bell


def run(work: Callable[[Call], T]) -> T:
    """Do the work of a call."""
    call = Call()
    with call.lock:
        try:
            try:
                return work(call)
            finally:
                call.end()
        finally:
            call.end()  # again: an exception may have cut the first one short


class FairQueue:
    """A queue with a number of slots: calls have one each, in order of arrival."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._calls: list[Call] = []  # those that have a slot, then those that wait
        self._guard = threading.RLock()  # a signal handler may make a call of its own at any time
        _queues.add(self)

    def enter(self, call: Call, limit: float = math.inf) -> bool:
        """Wait for a slot, for about `limit` seconds. Return whether the call has one."""
        call.held.append(self)
        with self._guard:
            self._calls.append(call)
            if len(self._calls) <= self._slots:
                return True
        # Time is counted, not read: a clock may be frozen.
        looks = 0.0
        while not self._has_slot(call):
            if not call.wait():
                looks += 1
            if looks * _LOOK > limit:
                return False
        return True

    def release(self, call: Call) -> None:
        """Leave the queue, and wake the next call."""
        with self._guard:
            if call in self._calls:
                self._calls.remove(call)
            if len(self._calls) >= self._slots:
                for other in self._calls[: self._slots]:
                    other.wake()

    def holder(self) -> Call | None:
        """Return the first call of the queue."""
        with self._guard:
            return self._calls[0] if self._calls else None

    def has(self, thread: int) -> bool:
        """Whether a call of this thread has a slot or waits for one."""
        with self._guard:
            return any(call.thread == thread for call in self._calls)

    def waiting(self) -> int:
        """Return how many calls wait for a slot."""
        with self._guard:
            return max(0, len(self._calls) - self._slots)

    def _has_slot(self, call: Call) -> bool:
        with self._guard:
            if any(not other.lock.locked() for other in self._calls):
                self._calls = [other for other in self._calls if other.lock.locked()]
            has_slot = self._calls.index(call) < self._slots
            if not has_slot:
                call.sleeps()
            return has_slot

    def _forked(self) -> None:
        """Forget the calls of other threads, in a child: they go on in the parent alone."""
        self._guard = threading.RLock()
        self._calls = [call for call in self._calls if call.thread == threading.get_ident()]


_queues: weakref.WeakSet[FairQueue] = weakref.WeakSet()


def forked() -> None:
    """Have every queue of a forked child forget the calls that go on in its parent alone."""
    for queue in list(_queues):
        queue._forked()
