"""The alarm: interrupts a call that takes too long, where that is possible: in the main thread, on Unix."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

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


@dataclasses.dataclass(frozen=True, slots=True)
class _TimedBlock:
    """A `with` block: the timer that ran before it, and the one that runs now."""

    earlier: tuple[float, float]
    """Seconds that were left, and its interval."""
    seconds: float
    is_ours: bool
    """Whether it is the block that has no time left when the timer rings."""


class Alarm:
    """Raises `TimeIsUp` in a `with` block that takes more than `seconds`.

    Its signal handler is installed once, since that takes longer than many a call. Another alarm, such as that of a
    plugin that limits the time of tests, keeps running: it rings when it would have rung, inside a block and outside.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._is_installed = False
        self._blocks: list[_TimedBlock] = []
        """The blocks that are entered, the innermost last."""

    def __enter__(self) -> None:
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        if not self._is_installed:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._is_installed = True
        earlier = signal.getitimer(signal.ITIMER_REAL)
        is_in_ours = bool(self._blocks) and self._blocks[-1].is_ours
        self._blocks.append(_armed(self.seconds, earlier, is_in_ours=is_in_ours))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._blocks and threading.current_thread() is threading.main_thread():
            block = self._blocks.pop()
            left, interval = block.earlier
            passed = block.seconds - signal.setitimer(signal.ITIMER_REAL, 0)[0]
            if left:
                signal.setitimer(signal.ITIMER_REAL, max(left - passed, _AT_ONCE), interval)

    def close(self) -> None:
        """Restore the previous signal handler."""
        if self._is_installed:
            self._is_installed = False
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        block = self._blocks[-1] if self._blocks else None
        if block is not None and block.is_ours:
            raise TimeIsUp
        if callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            self.close()
            os.kill(os.getpid(), number)
        if block is not None:
            interval = block.earlier[1]
            self._blocks[-1] = _armed(self.seconds - block.seconds, (interval, interval), is_in_ours=False)


def _armed(seconds: float, earlier: tuple[float, float], *, is_in_ours: bool) -> _TimedBlock:
    """Start the timer of a block, or keep the earlier one if that is to ring before."""
    is_sooner = 0 < earlier[0] < seconds
    block = _TimedBlock(earlier, earlier[0] if is_sooner else seconds, is_ours=is_in_ours or not is_sooner)
    signal.setitimer(signal.ITIMER_REAL, block.seconds)
    return block
