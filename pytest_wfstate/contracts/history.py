"""History: what was said in a session, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from pytest_wfstate.contracts.records import plain_json

__all__ = ["HistoryStore"]


def check_items(items: Any) -> list[Any]:
    """Return copies of the items to append.

    Raises:
        TypeError: they are not in a list.
        ValueError: one of them has no JSON equivalent.

    """
    if not isinstance(items, (list, tuple)):
        raise TypeError(f"items is {items!r} of type {type(items).__name__}. Pass a list, even for one item: [item].")
    return [plain_json(item) for item in items]


def check_limit(limit: Any) -> int | None:
    """Return how many items to read at most; None means all.

    Raises:
        ValueError: it is negative or not a whole number.

    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"limit is {limit!r}. It must be a whole number, at least 0, or None for all items.")
    return limit


@runtime_checkable
class HistoryStore(Protocol):
    """Keeps a list of items per session, such as messages. An item is any JSON value."""

    def append(self, session_id: str, items: Sequence[Any]) -> None:
        """Add items at the end, in this order: all of them or, if one cannot be stored, none."""

    def read(self, session_id: str, limit: int | None = None) -> list[Any]:
        """Return the last `limit` items, or all of them, oldest first. An unknown session has none."""

    def pop(self, session_id: str) -> Any:
        """Remove the newest item and return it, or None if there is none."""

    def clear(self, session_id: str) -> None:
        """Remove all items. Clearing an empty history is not an error."""
