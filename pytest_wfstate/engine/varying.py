"""Values that vary from run to run: times near the present, and texts that a store generates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from pytest_wfstate.contracts.base import ANY_TIME
from pytest_wfstate.contracts.clock import milliseconds, now, seconds

_RECENT = datetime.timedelta(days=1)
_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)  # in a second


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value in which some texts are replaced."""
    return _replaced(value, lambda part: names.get(part, part) if isinstance(part, str) else part) if names else value


def timeless(value: Any) -> Any:
    """Return a value in which a time near the present is any time, as the reference writes it."""
    return _replaced(value, _any_time)


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, change) for item in value)
    if type(value) is dict:
        return {key: _replaced(item, change) for key, item in value.items()}
    if isinstance(value, BaseModel):
        fields = {name: _replaced(item, change) for name, item in value}
        changed = {name: item for name, item in fields.items() if item is not getattr(value, name)}
        return value.model_copy(update=changed) if changed else value
    return change(value)


def _any_time(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return ANY_TIME if _is_recent(value) else value
    if type(value) is str:
        return ANY_TIME.isoformat() if _is_recent_text(value) else value
    if type(value) is int and any(_is_recent_number(value / unit) for unit in _UNITS):
        return milliseconds(ANY_TIME)
    return ANY_TIME.timestamp() if type(value) is float and _is_recent_number(value) else value


def _is_recent_text(text: str) -> bool:
    if len(text) < len("2001-02-03"):
        return False
    try:
        return _is_recent(datetime.datetime.fromisoformat(text))
    except ValueError:
        return False


def _is_recent_number(number: float) -> bool:
    return abs(number - seconds(now())) < _RECENT.total_seconds()


def _is_recent(moment: datetime.datetime) -> bool:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return abs(aware - now()) < _RECENT
