"""What the memory stores share: a lock, a clock, and further handles on the same memory."""

from __future__ import annotations

import copy
import threading
from typing import Self

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.stores.base import Store


class MemoryStore(Store):
    """A store that keeps JSON text in dictionaries. `clock` stands in for the time of day."""

    def __init__(self, *, clock: Clock = now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begin()

    def handle(self) -> Self:
        """Open another handle on the same memory, as another process would on the same disk."""
        other = copy.copy(self)
        other._begin()
        return other

    def _begin(self) -> None:
        """Set up what belongs to one handle alone."""
