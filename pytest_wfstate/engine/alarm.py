"""The alarm: interrupts a call that takes too long, where that is possible: in the main thread of a process on Unix."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class TimeIsUp(BaseException):
    """Interrupts a call. No `except Exception` or `except OSError` of a store that tries again and again stops it."""


class Alarm:
    """Rings in a `with` block that takes more than `seconds`.

    It is put in place once, since that takes longer than many a call. Somebody else's alarm, such as that of a plugin
    that limits the time of tests, goes on meanwhile: what rings outside of a block, or was set before it, is theirs.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._is_in_place = False
        self._left: list[tuple[float, float]] = []
        """For each block that is entered, what was left of the alarm before."""

    def __enter__(self) -> None:
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        if not self._is_in_place:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._is_in_place = True
        self._left.append(signal.setitimer(signal.ITIMER_REAL, self.seconds))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._left and threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, *self._left.pop())

    def close(self) -> None:
        """Put back what was there before."""
        if self._is_in_place:
            self._is_in_place = False
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._left:
            raise TimeIsUp
        if callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            self.close()
            os.kill(os.getpid(), number)
