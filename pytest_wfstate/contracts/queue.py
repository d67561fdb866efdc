"""Queue: work that waits for a worker, oldest first, and work that a worker has taken."""

from __future__ import annotations

import builtins
from typing import Any, Protocol, runtime_checkable

from pytest_wfstate.contracts.records import U64, Json, Record, Text

__all__ = ["QueueItem", "QueueStore", "TakenItem"]


class QueueItem(Record):
    """An item that waits: its id, its value, and how often it has been taken so far."""

    id: Text
    value: Json
    attempts: U64 = 0


class TakenItem(QueueItem):
    """An item that was taken, this time included in `attempts`, with the token that ends it."""

    token: Text


@runtime_checkable
class QueueStore(Protocol):
    """Hands each item to one worker at a time, until it is done."""

    def put(self, item_id: str, value: Any) -> None:
        """Add an item at the end. If its id waits already, or is taken, nothing changes: the call is a retry."""

    def take(self) -> TakenItem | None:
        """Take the oldest waiting item, or return None if none waits. Every take has a new token."""

    def done(self, item_id: str, token: str) -> bool:
        """Remove a taken item, if the token is that of its latest take; return whether it was."""

    def retry(self, item_id: str, token: str) -> bool:
        """Have a taken item wait again at its former place, if the token matches; return whether it did."""

    def recover(self, older_than: float | None = None) -> int:
        """Have taken items wait again whose worker is gone, at their former places; return how many there were.

        Items that were taken less than `older_than` seconds ago are left alone: their workers may be at work.
        """

    def size(self) -> int:
        """Return how many items wait."""

    def list(self) -> builtins.list[QueueItem]:
        """Return the waiting items, in the order in which they will be taken."""
