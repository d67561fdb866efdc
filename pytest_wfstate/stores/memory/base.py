"""What the memory stores share: a lock, a clock, and further handles on the same memory."""

from __future__ import annotations

import copy
import threading
from typing import Any, Self

from pydantic import BaseModel

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.stores.base import Store


class MemoryStore(Store):
    """A store that keeps JSON text in dictionaries. `clock` stands in for the time of day."""

    def __init__(self, *, clock: Clock = now) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may use the store in the middle of a call
        self._begin()

    def handle(self) -> Self:
        """Open another handle on the same memory, as another process would on the same disk."""
        other = copy.copy(self)
        other._begin()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the memory with everything in it. Handles that are copied together share the copy."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if id(value) not in memo:
                memo[id(value)] = threading.RLock() if value is self._lock else _copied(value)
            setattr(other, name, memo[id(value)])
        return other

    def _begin(self) -> None:
        """Set up what belongs to this handle alone."""


def _copied(value: Any) -> Any:
    """Copy what a store keeps. Text, times and owners are immutable; `copy.deepcopy` would take far longer."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, set):
        return set(value)
    return value.model_copy(deep=True) if isinstance(value, BaseModel) else value
