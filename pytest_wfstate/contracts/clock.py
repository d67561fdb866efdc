"""The only place where a store reads the time, so that a frozen clock freezes every backend."""

from __future__ import annotations

import datetime
from collections.abc import Callable

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Clock = Callable[[], datetime.datetime]


def now() -> datetime.datetime:
    """Return the current time in UTC.

    It uses `datetime`, never `time.time()`: freezegun returns the real time from a `time.time()` that is called close
    to the start of a thread, which is where async stores do their work.
    """
    return datetime.datetime.now(datetime.UTC)


def seconds(moment: datetime.datetime) -> int:
    """Return whole seconds since 1970, the timestamps of the effects contract."""
    return (moment - _EPOCH) // datetime.timedelta(seconds=1)


def milliseconds(moment: datetime.datetime) -> int:
    """Return whole milliseconds since 1970, the timestamps of the snapshots contract."""
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
