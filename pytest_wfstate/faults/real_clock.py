"""A clock that keeps running in a test that freezes time: freezegun stops `time.monotonic` and `perf_counter` too."""

from __future__ import annotations

import time

_gettime = time.clock_gettime  # the real one, whatever stands in for it


def now() -> float:
    """Return the seconds since an arbitrary point in the past."""
    return _gettime(time.CLOCK_MONOTONIC)


def processor_time() -> float:
    """Return the seconds that the threads of this process have run."""
    return _gettime(time.CLOCK_PROCESS_CPUTIME_ID)
