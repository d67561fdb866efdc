"""The alarm: interrupts a call that takes too long, where that is possible: in the main thread, on Unix."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from pytest_wfstate.faults.patience import Patience
from pytest_wfstate.faults.real_clock import now

_AT_ONCE = 1e-6  # seconds: 0 would stop the timer


class TimeIsUp(BaseException):
    """Interrupts a call. It is a BaseException so that a store's retry loop does not swallow it."""

    def place(self) -> TracebackType | None:
        """Return the traceback of the interrupted code, without the signal handler that raised this."""
        line = self.__traceback__
        while line is not None and line.tb_next is not None:
            if line.tb_next.tb_frame.f_code is Alarm._ring.__code__:
                line.tb_next = None
            line = line.tb_next
        return self.__traceback__


class Alarm:
    """Raises `TimeIsUp` in a `with` block that takes more than `seconds`, not counting what a busy machine takes.

    Its signal handler is installed once, since that takes longer than many a call. Another alarm, such as that of a
    plugin that limits the time of tests, keeps running: it rings when it would have rung, inside a block and outside.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._is_installed = False
        self._blocks: list[Patience] = []
        """Those of the blocks that are entered, the innermost last."""
        self._theirs: float | None = None
        """When the other alarm rings, if there is one."""
        self._interval = 0.0
        """After how many seconds it rings again, if it does."""
        self._ours = 0.0
        """When the innermost block is looked at next. A signal before that is somebody else's."""

    def __enter__(self) -> None:
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        if not self._is_installed:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._is_installed = True
        if not self._blocks:
            left, self._interval = signal.getitimer(signal.ITIMER_REAL)
            self._theirs = now() + left if left else None
        else:
            _stop_timer()
        self._blocks.append(Patience(self.seconds))
        self._start_timer()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._blocks and threading.current_thread() is threading.main_thread():
            try:
                _stop_timer()
            finally:
                self._blocks.pop()
                self._start_timer()

    def close(self) -> None:
        """Restore the previous signal handler."""
        if self._is_installed:
            self._is_installed = False
            signal.signal(signal.SIGALRM, self._before)

    def _start_timer(self) -> None:
        """Start the timer for what is due first, or for the other alarm alone if no block is entered."""
        theirs = None if self._theirs is None else max(self._theirs - now(), _AT_ONCE)
        if not self._blocks:
            signal.setitimer(signal.ITIMER_REAL, theirs or 0, self._interval)
            return
        ours = self._blocks[-1].interval
        self._ours = now() + ours
        signal.setitimer(signal.ITIMER_REAL, ours if theirs is None else min(ours, theirs))

    def _ring(self, number: int, frame: FrameType | None) -> None:
        is_theirs = self._theirs is not None and now() >= self._theirs
        if self._blocks and not is_theirs and now() >= self._ours:
            looks = [patience.is_over() for patience in self._blocks]
            if any(looks):
                raise TimeIsUp
        elif callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            self.close()
            os.kill(os.getpid(), number)
        if self._blocks:
            if is_theirs:
                self._theirs = now() + self._interval if self._interval else None
            self._start_timer()


def _stop_timer() -> None:
    """Stop the timer. If it has just run out, the handler runs now, before the block that it is about is changed."""
    signal.setitimer(signal.ITIMER_REAL, 0)
