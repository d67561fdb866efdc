"""Patience: how long code may take before it counts as code that hangs, however busy the machine is."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, NamedTuple

from pytest_wfstate.faults.real_clock import now

_LOOKS = 10
_listdir, _open, _read, _close = os.listdir, os.open, os.read, os.close  # the real ones, whatever stands in for them


class ThreadTimes(NamedTuple):
    """What the kernel says about a thread."""

    ran: float
    """For how many seconds it has had a processor."""
    starved: float
    """For how many seconds it could run, but had none, up to when it last got one."""
    is_kept: bool
    """Whether it could run, or waits for a disk."""


class Patience:
    """Waits for some processes for `seconds` of their own time, in which they compute or wait.

    Not counted is the time in which one of their threads could run, but got no processor, or waited for a disk, nor
    that in which nobody looked: what stops the machine stops the one who looks as well.
    """

    __slots__ = ("_last", "_left", "_pids", "_progress", "_seconds", "_threads", "interval")

    def __init__(self, seconds: float, *pids: int) -> None:
        self.interval = seconds / _LOOKS
        """How long to wait before each look."""
        self._pids = pids
        self._seconds = seconds
        self._progress: Any = self
        self._left = seconds
        self._last = 0.0
        self._threads: dict[str, ThreadTimes] = {}

    def is_over(self, progress: Any = None) -> bool:
        """Look at them; return whether they have had their time since they last made progress, if that is known.

        The first look is where their time begins, so that those who never wait that long need not look.
        """
        moment, threads = now(), _threads(self._pids or (os.getpid(),))
        if progress != self._progress:
            self._progress, self._left = progress, self._seconds - 1.5 * self.interval
        else:
            passed = moment - self._last
            kept = (_kept(thread, times, self._threads.get(thread, times), passed) for thread, times in threads.items())
            self._left -= min(self.interval, max(0.0, passed - max(kept, default=0.0)))
        self._last, self._threads = moment, threads
        return self._left <= 0


def _kept(thread: str, times: ThreadTimes, before: ThreadTimes, passed: float) -> float:
    """Return for how many of the seconds that have passed since `before` the machine kept a thread from running.

    While a thread waits for a processor, the kernel does not say for how long; only the one that looks is running.
    """
    if times.is_kept and thread != str(threading.get_native_id()):
        return passed - (times.ran - before.ran)
    return times.starved - before.starved


def _threads(pids: tuple[int, ...]) -> dict[str, ThreadTimes]:
    """Return the threads of some processes, as far as the kernel tells."""
    threads = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in _listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    ran, starved, _ = _text(f"/proc/{pid}/task/{thread}/schedstat").split()
                    state = _text(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()[0]
                    threads[thread] = ThreadTimes(int(ran) / 1e9, int(starved) / 1e9, state in "RD")
    return threads


def _text(path: str) -> str:
    fd = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(fd, 1000).decode()
    finally:
        _close(fd)
