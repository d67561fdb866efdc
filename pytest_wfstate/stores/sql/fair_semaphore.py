"""Room: a bound on how many calls have a connection at once. Who comes when there is none waits for its turn.

`threading.Semaphore` takes a tenth of the time that SQLite takes for a small change, and lets who has just given
something back take it again, while others wait for as long as that goes on.
"""

from __future__ import annotations

import threading
from collections import deque


class FairSemaphore:
    """Has places for so many. It is given a place back for each that it gave."""

    __slots__ = ("_free", "_lock", "_waiting")

    def __init__(self, places: int) -> None:
        self._free = [None] * places
        self._waiting: deque[threading.Lock] = deque()  # each is released when there is a place for who waits for it
        self._lock = threading.Lock()

    def take(self) -> None:
        """Take a place: at once if there is one, and after all who wait already."""
        if not self._waiting:
            try:
                self._free.pop()
            except IndexError:
                pass
            else:
                return
        self._wait()

    def give(self) -> None:
        """Give a place back."""
        self._free.append(None)
        if self._waiting:
            self._serve()

    def _wait(self) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        try:
            self._serve()  # a place may have been given back a moment ago, when nobody waited
            turn.acquire()
        except BaseException:
            self._leave(turn)
            raise

    def _serve(self) -> None:
        with self._lock:
            while self._waiting:
                try:
                    self._free.pop()
                except IndexError:
                    return
                self._waiting.popleft().release()

    def _leave(self, turn: threading.Lock) -> None:
        """Wait no longer: Ctrl-C was pressed."""
        with self._lock:
            is_served = turn not in self._waiting
            if not is_served:
                self._waiting.remove(turn)
        if is_served:
            self.give()
