"""The one place where a store reads the time, so that a frozen clock freezes every backend alike."""

from __future__ import annotations

import datetime
from collections.abc import Callable

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Clock = Callable[[], datetime.datetime]


def now() -> datetime.datetime:
    """Tell the time, in UTC.

    It asks `datetime`, never `time.time()`: freezegun gives the real time to a `time.time()` that is called
    close to the start of a thread, which is where async stores do their work.
    """
    return datetime.datetime.now(datetime.UTC)


def seconds(moment: datetime.datetime) -> int:
    """Whole seconds since 1970, as the effects contract stamps its records."""
    return (moment - _EPOCH) // datetime.timedelta(seconds=1)


def milliseconds(moment: datetime.datetime) -> int:
    """Whole milliseconds since 1970, as the snapshots contract stamps its records."""
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
