"""The alarm: interrupts a call that takes too long, where that is possible: in the main thread, on Unix."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class TimeIsUp(BaseException):
    """Interrupts a call. It is a BaseException so that a store's retry loop does not swallow it."""


class Alarm:
    """Raises `TimeIsUp` in a `with` block that takes more than `seconds`.

    Its signal handler is installed once, since that takes longer than many a call. Another alarm, such as that of a
    plugin that limits the time of tests, keeps running: a signal outside of a block is passed on to it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._is_installed = False
        self._left: list[tuple[float, float]] = []
        """For each block that is entered, the time that was left on the previous timer."""

    def __enter__(self) -> None:
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        if not self._is_installed:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._is_installed = True
        self._left.append(signal.setitimer(signal.ITIMER_REAL, self.seconds))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._left and threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, *self._left.pop())

    def close(self) -> None:
        """Restore the previous signal handler."""
        if self._is_installed:
            self._is_installed = False
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._left:
            raise TimeIsUp
        if callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            self.close()
            os.kill(os.getpid(), number)
