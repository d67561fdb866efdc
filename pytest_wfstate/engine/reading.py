"""Readings: a list that a store returns as an iterator, read item by item."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

__tracebackhide__ = True

_END = object()

Run = Callable[[Callable[[], Any], str], Any]
"""Calls a function within the time limit, and awaits what it returns if need be."""


class Reading:
    """Reads a sync or async iterator."""

    def __init__(self, iterator: Iterator[Any] | AsyncIterator[Any], run: Run, name: str) -> None:
        self._iterator: Any = iterator
        self._run = run
        self._name = name

    def read_one(self) -> bool:
        """Read an item. Return whether there was one."""
        is_async = isinstance(self._iterator, AsyncIterator)
        read = (lambda: anext(self._iterator, _END)) if is_async else (lambda: next(self._iterator, _END))
        return self._run(read, self._name) is not _END

    def close(self) -> None:
        """Close it, as leaving a loop in the middle does; an iterator that cannot be closed is dropped."""
        close = getattr(self._iterator, "aclose", None) or getattr(self._iterator, "close", None)
        self._iterator = iter(())
        if close is not None:
            self._run(close, f"closing the iterator of {self._name}")
