"""Clocks: the time that clients see. It stands still, except that sleeps take their time.

So how often a client polls until its deadline depends neither on the machine nor on how long others are stopped.
"""

from __future__ import annotations

import collections
import functools
import math
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.race.dates import install_dates
from pytest_wfstate.faults.source_lines import is_users

_LOOK = 1000  # nanoseconds that a look at the clock takes, so that no two show the same
_SPINS = 10  # looks from one place without a sleep, before that is polling without a pause, and takes longer and longer
_PATIENCE = 60  # sleeps of a client that changes nothing, after which they take longer and longer
_DOUBLING = 5
_LONGEST = 1e6  # seconds that such a look or sleep takes at most, or a year would have too many digits for a date

_real_gettime, _real_gettime_ns = time.clock_gettime, time.clock_gettime_ns
_NAMES = ("time", "monotonic", "perf_counter")
_BY_NUMBER = {
    getattr(time, number): name
    for number, name in (
        ("CLOCK_REALTIME", "time"),
        ("CLOCK_MONOTONIC", "monotonic"),
        ("CLOCK_MONOTONIC_RAW", "monotonic"),
        ("CLOCK_BOOTTIME", "monotonic"),
    )
    if hasattr(time, number)
}
"""The clocks of clock_gettime(2) that count the time that is slept."""
_REAL_DATES = {name: getattr(time, name) for name in ("gmtime", "localtime", "ctime")}
_real_strftime = time.strftime
_REAL_CLOCKS = {name + unit: getattr(time, name + unit) for name in _NAMES for unit in ("", "_ns")}
CLOCK_IDS = set(
    map(id, (*_REAL_CLOCKS.values(), *_REAL_DATES.values(), _real_strftime, _real_gettime, _real_gettime_ns))
)
"""The real clocks. Many tools hold one, and a client that sees the real time misses nothing but its own sleeps."""
_FOLDER = os.path.join(os.path.dirname(__file__), "")


class VirtualClock:
    """The time that clients see."""

    def __init__(self) -> None:
        self._passed = 0
        self._looks: collections.Counter[tuple[types.CodeType, int]] = collections.Counter()
        """How often it was looked at from where, since anyone last slept."""
        self.reset()

    @property
    def seconds(self) -> float:
        """How many seconds have passed since it was made."""
        return self._passed / 1e9

    def reset(self) -> None:
        """Set it to the real time."""
        self._began = {name: _REAL_CLOCKS[f"{name}_ns"]() - self._passed for name in _NAMES}
        self._looks.clear()

    def sleep(self, seconds: float, naps: int = 0) -> None:
        """Let some time pass, or more if the client slept very often already; `naps` counts how often."""
        self._looks.clear()
        self._passed += math.ceil(max(seconds, min(seconds * _growth(naps, _PATIENCE), _LONGEST)) * 1e9)

    def look(self, name: str) -> Any:
        """Return what a clock of the module `time` shows."""
        self.pass_look()
        nanoseconds = self._began[name.removesuffix("_ns")] + self._passed
        return nanoseconds if name.endswith("_ns") else nanoseconds / 1e9

    def pass_look(self) -> None:
        """Let the time of a look pass, which is longer if the user's code polls the clock without a pause."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
            frame = frame.f_back
        looks = 0
        if is_users(frame.f_code.co_filename):
            place = frame.f_code, frame.f_lasti
            self._looks[place] += 1
            looks = self._looks[place]
        self._passed += min(_LOOK * _growth(looks, _SPINS), int(_LONGEST * 1e9))


def _growth(times: int, patience: int) -> int:
    """Return how much longer something takes that was done so many times."""
    return 1 << min(max(0, times - patience) // _DOUBLING, 60)


class ClockStandIns:
    """Stand-ins for all that shows the time: as long as `clock` returns a virtual clock, they show that one."""

    def __init__(self, clock: Callable[[], VirtualClock | None]) -> None:
        self._clock = clock

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return pairs of a real call and its stand-in."""
        return [
            *((real, functools.partial(self._look, name)) for name, real in _REAL_CLOCKS.items()),
            *((real, functools.partial(self._date, name)) for name, real in _REAL_DATES.items()),
            (_real_strftime, self._strftime),
            (_real_gettime, self._gettime),
            (_real_gettime_ns, self._gettime_ns),
        ]

    def install_dates(self) -> Callable[[], None]:
        """Have `datetime` and `date` follow, until the function that is returned is called."""
        return install_dates(functools.partial(self._look, "time_ns"))

    def _look(self, name: str) -> Any:
        clock = self._clock()
        return _REAL_CLOCKS[name]() if clock is None else clock.look(name)

    def _gettime(self, clk_id: int, /) -> float:
        clock, name = self._clock(), _BY_NUMBER.get(clk_id)
        return _real_gettime(clk_id) if clock is None or name is None else float(clock.look(name))

    def _gettime_ns(self, clk_id: int, /) -> int:
        clock, name = self._clock(), _BY_NUMBER.get(clk_id)
        return _real_gettime_ns(clk_id) if clock is None or name is None else int(clock.look(f"{name}_ns"))

    def _date(self, name: str, seconds: float | None = None, /) -> Any:
        return _REAL_DATES[name](self._look("time") if seconds is None else seconds)

    def _strftime(self, format: str, when: Any = None, /) -> str:  # noqa: A002
        return _real_strftime(format, self._date("localtime") if when is None else when)
