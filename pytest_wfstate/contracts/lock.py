"""Lock: which worker may do what only one may do, until when, and with which fencing token."""

from __future__ import annotations

import datetime
from typing import Any, Protocol, runtime_checkable

__all__ = ["LockStore"]

_LONGEST = 10**9  # seconds, about 31 years


def check_ttl(ttl: Any) -> datetime.timedelta:
    """Return for how long a lock is to be held.

    Raises:
        ValueError: it is not a number of seconds, or not a sensible one.

    """
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl <= _LONGEST:
        raise ValueError(
            f"ttl is {ttl!r}. It must be a number of seconds, more than 0 and at most {_LONGEST:,}. Choose the longest "
            "time for which a live worker may go without renewing its lock."
        )
    return datetime.timedelta(seconds=ttl)


@runtime_checkable
class LockStore(Protocol):
    """Hands each lock to one holder at a time, until it is released or its time is over."""

    def acquire(self, name: str, ttl: float) -> int | None:
        """Hold the lock for `ttl` seconds, and return a token; None if somebody holds it, whoever that is.

        Each acquisition of a lock has a greater token than all before it. Pass it on with what you change elsewhere:
        whoever receives a smaller token than before hears from a worker that has lost the lock.
        """

    def renew(self, name: str, token: int, ttl: float) -> bool:
        """Hold the lock for `ttl` seconds from now, if the token is that of its present holder; return whether it is.

        If not, stop: the lock may be another worker's.
        """

    def release(self, name: str, token: int) -> bool:
        """Release the lock, if the token is that of its present holder; return whether it was."""

    def held(self, name: str) -> bool:
        """Whether somebody holds the lock now."""
