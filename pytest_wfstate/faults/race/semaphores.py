"""Locks and other semaphores of `multiprocessing` that are older than the clients' processes, which so share them.

Nobody is scheduled around them, and their owner is stopped while another client waits. So a client that finds one taken
is noted.
"""

from __future__ import annotations

import sys
from typing import Any

from pytest_wfstate.faults.race.file_steps import FileSteps
from pytest_wfstate.faults.source_lines import users_line

_PATIENCE = 1.0  # seconds in which a thread of the same client may free one
TAKEN = "a lock of multiprocessing that another client holds"


def watch_semaphores(steps: FileSteps) -> None:
    """Watch all semaphores that this process shares with others, for good."""
    util, synchronize = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.synchronize")
    if util is None or synchronize is None:
        return
    for shared in list(util._afterfork_registry.values()):
        if isinstance(shared, synchronize.SemLock):
            shared._semlock = WatchedSemaphore(shared._semlock, steps)
            shared._make_methods()


class WatchedSemaphore:
    """Stands in for what `multiprocessing` makes its locks of."""

    def __init__(self, semaphore: Any, steps: FileSteps) -> None:
        self._semaphore = semaphore
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._semaphore, name)

    def acquire(self, block: bool = True, timeout: float | None = None) -> Any:
        """Acquire it; return whether that succeeded."""
        if not self._steps.is_on:
            return self._semaphore.acquire(block, timeout)
        limit = _PATIENCE if timeout is None else min(timeout, _PATIENCE)
        is_acquired = self._semaphore.acquire(block, limit)
        if not is_acquired:
            self._steps.note_unseen(TAKEN)
            if block and timeout is None:
                self._steps.hang(users_line())
        return is_acquired

    def __enter__(self) -> Any:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._semaphore.release()
