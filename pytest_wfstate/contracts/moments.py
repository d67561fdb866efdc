"""Times: in UTC, written as the Rust library chrono writes them, to the nanosecond.

Python's `datetime` is exact to the microsecond. The stores that the contracts come from write nanoseconds, which a
record must not lose when it is loaded and saved again.
"""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, PlainSerializer, ValidatorFunctionWrapHandler, WrapValidator

_NANOSECONDS = re.compile(r"\.\d{6}(\d{1,3})")


class NanosecondTime(datetime.datetime):
    """A time between two microseconds. It is equal to no time but the very same."""

    nanosecond: int = 0
    """How many nanoseconds it is after the microsecond, 0 to 999."""

    @classmethod
    def after(cls, moment: datetime.datetime, nanosecond: int) -> Self:
        """Return the time so many nanoseconds after a microsecond in UTC."""
        time = cls(*moment.timetuple()[:6], moment.microsecond, tzinfo=datetime.UTC)
        time.nanosecond = nanosecond
        return time

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, datetime.datetime):
            return NotImplemented
        return super().__eq__(other) and self.nanosecond == getattr(other, "nanosecond", 0)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.nanosecond))

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        plain = datetime.datetime(*self.timetuple()[:6], self.microsecond, tzinfo=self.tzinfo)
        return type(self).after, (plain, self.nanosecond)


def _validate(value: Any, handler: ValidatorFunctionWrapHandler) -> datetime.datetime:
    if isinstance(value, NanosecondTime) and value.tzinfo is datetime.UTC:
        return value
    moment = _in_utc(handler(_not_a_number(value)))
    digits = _NANOSECONDS.search(value) if isinstance(value, str) else None
    nanosecond = int(digits[1].ljust(3, "0")) if digits else 0
    return NanosecondTime.after(moment, nanosecond) if nanosecond else moment


def _not_a_number(value: Any) -> Any:
    try:
        float(value)  # text too: pydantic would read "1767323045" as seconds since 1970
    except (TypeError, ValueError):
        return value
    except OverflowError:
        pass
    raise ValueError(f"{value!r} is a number. A time must be a datetime with a time zone, or RFC 3339 text")


def _in_utc(value: datetime.datetime) -> datetime.datetime:
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"{value} has no equivalent in UTC") from None


def _rfc3339(value: datetime.datetime) -> str:
    """Format a time with Z, and the fewest of 0, 3, 6 or 9 decimals that are exact."""
    nanosecond = getattr(value, "nanosecond", 0)
    if nanosecond:
        precision, rest = "microseconds", f"{nanosecond:03}"
    elif value.microsecond == 0:
        precision, rest = "seconds", ""
    else:
        precision, rest = ("microseconds" if value.microsecond % 1000 else "milliseconds"), ""
    return value.isoformat(timespec=precision).removesuffix("+00:00") + rest + "Z"


Moment = Annotated[AwareDatetime, WrapValidator(_validate), PlainSerializer(_rfc3339)]
