"""The clock of `datetime`, which follows that of the clients.

The methods of the real classes are replaced. A subclass in their place, as freezegun has it, would be another type to
pickle, to compare, and to those who hold the real one.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

_RealDate, _RealDatetime = datetime.date, datetime.datetime


def install_dates(clock: Callable[[], int]) -> Callable[[], None]:
    """Have `datetime` and `date` take the time from `clock`, in nanoseconds since 1970; return what ends that."""

    def now(cls: Any, tz: datetime.tzinfo | None = None) -> Any:
        seconds, nanoseconds = divmod(clock(), 10**9)
        return cls.fromtimestamp(seconds, tz).replace(microsecond=nanoseconds // 1000)

    def utcnow(cls: Any) -> Any:
        if sys.version_info >= (3, 12):
            warnings.warn("datetime.datetime.utcnow() is deprecated", DeprecationWarning, stacklevel=2)
        return now(cls, datetime.UTC).replace(tzinfo=None)

    def today(cls: Any) -> Any:
        return now(cls)

    def date_today(cls: Any) -> Any:
        return cls.fromtimestamp(clock() // 10**9)

    restores = [
        _replaced(_RealDatetime, now=now, utcnow=utcnow, today=today),
        _replaced(_RealDate, today=date_today),
    ]

    def restore() -> None:
        for restore_one in restores:
            restore_one()

    return restore


def _replaced(owner: type, **methods: Callable[..., Any]) -> Callable[[], None]:
    """Replace class methods of a type that cannot be changed otherwise; return what puts them back."""
    (names,) = gc.get_referents(vars(owner))
    before = {name: names[name] for name in methods if name in names}
    names.update({name: classmethod(method) for name, method in methods.items()})
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

    def restore() -> None:
        for name in methods:
            del names[name]
        names.update(before)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

    return restore
