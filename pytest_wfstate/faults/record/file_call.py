"""A real call that changes files, described so that the recorder can ask the gate, make it, and log its op.

These values are not frozen: one is made for each call, and a frozen one takes three times as long to make.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pytest_wfstate.faults.trace.ops import Op

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class FileCall(Generic[T]):
    """A call that changes a name or a size, or syncs."""

    expected: Callable[[], Op | None]
    """Return the op that the call will be, or None if it will fail or change nothing."""
    make: Callable[[], T]
    """Make the real call."""
    completed: Callable[[Any, T], Op] | None = None
    """Return the expected op, completed from the result of the call: a new file has an inode only now."""
    kind: str = ""
    """What the gate calls it, where the op does not say."""


@dataclasses.dataclass(slots=True, kw_only=True)
class WriteCall:
    """A call that writes to a file."""

    fd: int
    offset: int | None = None
    """Where it writes; None means the position of the descriptor."""
    flags: int = 0
    """Flags of open(2) that hold for this call only."""

    def size(self) -> int:
        """Return the number of bytes to write."""
        raise NotImplementedError

    def make(self, limit: int | None) -> Any:
        """Make the real call, with at most `limit` bytes, and return how many the kernel took."""
        raise NotImplementedError

    def taken(self, offset: int, size: int) -> bytes:
        """Return the `size` bytes that the kernel took and put at `offset`."""
        raise NotImplementedError
