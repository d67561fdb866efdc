"""Correct stores of the contracts that are not about workflows, to put bugs into."""

from __future__ import annotations

from typing import Any

from pytest_wfstate.contracts.history import check_items, check_limit
from pytest_wfstate.zoo.correct_stores import JsonFiles


class JsonHistory(JsonFiles):
    """Histories: each is a document with its items."""

    def append(self, session_id: str, items: Any) -> None:
        self.check(session_id)
        new = self.checked_items(items)
        if new:
            self.add(session_id, new)

    def checked_items(self, items: Any) -> list[Any]:
        """Return copies of the items to append, or refuse them."""
        return check_items(items)

    def add(self, session_id: str, items: list[Any]) -> None:
        """Store items that were checked."""
        with self.edit(session_id) as document:
            document["items"] = self.added(document.get("items", []), items)

    def added(self, items: list[Any], new: list[Any]) -> list[Any]:
        """Return a history with more items in it."""
        return [*items, *new]

    def read(self, session_id: str, limit: int | None = None) -> list[Any]:
        self.check(session_id)
        items = self.items(session_id)
        return self.limited(items if items else self.answer(None) or [], limit)

    def items(self, session_id: str) -> list[Any]:
        """Return the items of a session."""
        items: list[Any] = self.fields(session_id).get("items", [])
        return items

    def limited(self, items: list[Any], limit: int | None) -> list[Any]:
        """Return the last items."""
        number = check_limit(limit)
        return items if number is None else items[max(0, len(items) - number) :]

    def pop(self, session_id: str) -> Any:
        self.check(session_id)
        with self.edit(session_id) as document:
            return self.taken(document.setdefault("items", []))

    def taken(self, items: list[Any]) -> Any:
        """Remove an item and return it."""
        return items.pop() if items else None

    def clear(self, session_id: str) -> None:
        self.drop(session_id)


CORRECT_GENERIC_STORES: dict[str, type[JsonFiles]] = {"history": JsonHistory}
"""The correct store of each of these contracts."""
