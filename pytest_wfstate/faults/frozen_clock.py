"""A clock that stands still until it is moved: for time stamps and leases."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

from freezegun import freeze_time
from freezegun.api import FakeDate, FakeDatetime
from pydantic_core import core_schema

__all__ = ["FrozenClock"]

START = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def _teach_pydantic(fake: Any, schema: core_schema.CoreSchema) -> None:
    """Have pydantic treat a type of a frozen clock as the real one, in every schema that it first builds meanwhile."""
    fake.__get_pydantic_core_schema__ = classmethod(lambda *_: schema)


_teach_pydantic(FakeDatetime, core_schema.datetime_schema())
_teach_pydantic(FakeDate, core_schema.date_schema())


class FrozenClock:
    """The time of day that everything in this process sees while the clock is frozen."""

    def __init__(self, frozen: Any) -> None:
        self._frozen = frozen

    @property
    def now(self) -> datetime.datetime:
        """The current time, in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def tick(self, seconds: float | datetime.timedelta = 1.0) -> None:
        """Move the clock forward by `seconds`."""
        self._frozen.tick(seconds if isinstance(seconds, datetime.timedelta) else datetime.timedelta(seconds=seconds))

    def move_to(self, when: datetime.datetime | str) -> None:
        """Set the clock to another time, later or earlier."""
        self._frozen.move_to(when)


@contextlib.contextmanager
def frozen_clock(start: datetime.datetime | str = START) -> Iterator[FrozenClock]:
    """Freeze the time of day at `start`. asyncio's event loops keep real time, so `asyncio.sleep` returns."""
    # pytest measures how long a test took with _pytest.timing, which keeps real time too.
    with freeze_time(start, real_asyncio=True, ignore=["_pytest.timing"]) as frozen:
        yield FrozenClock(frozen)
