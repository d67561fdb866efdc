"""Blocked threads: which threads of this process wait for something, as the kernel knows it.

A thread that waits for the interpreter's lock sleeps, too, but not for longer than the switch interval: then it wakes
up and asks for the lock. So a thread is blocked if it slept without interruption for longer than that, which the
kernel's count of its context switches shows. A thread that only waits for a processor is not asleep. Therefore a busy
machine makes this slower, but not wrong.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from pytest_wfstate.faults.real_clock import now

_INTERVAL = 0.0005  # the switch interval while threads are watched
_ASLEEP_FOR = 0.0015  # seconds
_LOOKS = 4  # in that time: a machine that stands still for a moment wakes nobody

# The real calls: a recorder replaces them.
_open, _pread, _close, _sleep = os.open, os.pread, os.close, time.sleep


class BlockedThreads:
    """Watches the threads of this process, from `on` until `off`."""

    def __init__(self) -> None:
        self._asleep: dict[int, tuple[bytes, float, int]] = {}
        """For each thread that was asleep: its switches, since when they are the same, and how often that was seen."""
        self._interval = 0.0

    def on(self) -> None:
        """Shorten the switch interval, and let it take effect: it is read when a thread begins to wait."""
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(_INTERVAL)
        _sleep(self._interval)

    def off(self) -> None:
        """Restore the switch interval."""
        if self._interval:
            sys.setswitchinterval(self._interval)

    def has(self, thread: int) -> bool:
        """Whether a thread, by its native id, is blocked or has ended. Ask again until it is."""
        status = _status(thread)
        if status is None:
            return True
        state, _, switches = status.partition(b"voluntary_ctxt_switches")
        if not _is_asleep(state):
            self._asleep.pop(thread, None)
            return False
        known, since, looks = self._asleep.get(thread, (b"", 0.0, 0))
        if known != switches:
            since, looks = now(), 0
        self._asleep[thread] = (switches, since, looks + 1)
        return looks >= _LOOKS and now() - since >= max(_ASLEEP_FOR, 3 * sys.getswitchinterval())


def can_watch_threads() -> bool:
    """Whether the kernel says what threads do."""
    return _status(threading.get_native_id()) is not None


def all_threads() -> set[int]:
    """Return the native ids of all threads of this process, Python's own or not, as far as the kernel says."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def has_ended(thread: int) -> bool:
    """Whether the kernel says that a thread, by its native id, is over."""
    return _status(thread) is None and can_watch_threads()


def is_running(thread: int) -> bool:
    """Whether a thread, by its native id, runs or could run, as far as it does not wait for the interpreter's lock."""
    status = _status(thread)
    return status is not None and not _is_asleep(status)


def _status(thread: int) -> bytes | None:
    try:
        fd = _open(f"/proc/self/task/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _pread(fd, 4096, 0)
    except OSError:
        return None
    finally:
        _close(fd)


def _is_asleep(status: bytes) -> bool:
    return b"\nState:\tS" in status
