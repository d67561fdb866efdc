"""A cache that is bounded by bytes, and slows down little by little when more is in use than it holds.

Evicting the oldest entry alone would be a cliff: if the entries are used in turn, and there is room for all but one,
the oldest is always the next to be needed. Evicting the newest alone would keep forever what nobody uses any more. So
it is the newest, and every fourth time the oldest: of 200 entries used in turn, with room for 100, a third is found.
"""

from __future__ import annotations

import collections
import os
import threading
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteBoundCache(Generic[V]):
    """Values by name, of `limit` bytes at most; a value that is larger than that is kept alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._evictions = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._entries: collections.OrderedDict[str, tuple[V, int]] = collections.OrderedDict()
        self._bytes = 0
        self._lock = threading.RLock()  # a signal handler may use the store in the middle of a call

    def _locked(self) -> AbstractContextManager[object]:
        """Return the lock. A forked child starts empty: a thread that it does not have may hold the parent's lock."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def __reduce__(self) -> tuple[type[ByteBoundCache[V]], tuple[int]]:
        return type(self), (self._limit,)  # a copy starts empty

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, name: str, value: V, size: int) -> None:
        """Add a value of `size` bytes, evicting others to make room for it."""
        with self._locked():
            self._drop(name)
            while self._entries and self._bytes + size > self._limit:
                self._evictions += 1
                _, (_, evicted) = self._entries.popitem(last=self._evictions % 4 != 0)
                self._bytes -= evicted
            self._entries[name] = value, size
            self._bytes += size

    def pop(self, name: str) -> V | None:
        """Take a value out; None if it is not there."""
        with self._locked():
            return self._drop(name)

    def clear(self) -> None:
        """Forget everything."""
        with self._locked():
            self._entries.clear()
            self._bytes = 0

    def _drop(self, name: str) -> V | None:
        value, size = self._entries.pop(name, (None, 0))
        self._bytes -= size
        return value
