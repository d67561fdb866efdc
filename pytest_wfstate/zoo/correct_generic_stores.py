"""Correct stores of the contracts that are not about workflows, to put bugs into."""

from __future__ import annotations

import builtins
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.history import check_items, check_limit
from pytest_wfstate.contracts.lock import check_ttl
from pytest_wfstate.contracts.paused import check_age
from pytest_wfstate.contracts.queue import QueueItem, TakenItem
from pytest_wfstate.contracts.records import plain_json
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


class JsonQueue(JsonFiles):
    """A queue: one document with its items, in their order. One that is taken has a token."""

    def put(self, item_id: str, value: Any) -> None:
        self.check(item_id)
        value = self.checked_value(value)
        with self.entries() as entries:
            if self.find(entries, item_id) is None:
                entries.append({"id": item_id, "value": value, "attempts": 0, "token": None, "at": None})

    def checked_value(self, value: Any) -> Any:
        """Return a copy of a value to store, or refuse it."""
        return plain_json(value)

    def take(self) -> TakenItem | None:
        with self.entries() as entries:
            entry = self.next(self.waiting(entries))
            if entry is None:
                return None
            entry |= {"attempts": entry["attempts"] + 1, "token": self.new_token(entry), "at": now().timestamp()}
            return TakenItem(**{name: entry[name] for name in ("id", "value", "attempts", "token")})

    def next(self, waiting: builtins.list[Any]) -> Any:
        """Return which of the waiting items to take, if any."""
        return waiting[0] if waiting else None

    def new_token(self, _: dict[str, Any]) -> str:
        """Return a token for a take."""
        return uuid.uuid4().hex

    def done(self, item_id: str, token: str) -> bool:
        self.check(item_id, token)
        with self.entries() as entries:
            entry = self.taken(entries, item_id, token)
            if entry is not None:
                self.end(entries, entry)
        return entry is not None

    def end(self, entries: builtins.list[Any], entry: dict[str, Any]) -> None:
        """Remove an item that is done."""
        entries.remove(entry)

    def retry(self, item_id: str, token: str) -> bool:
        self.check(item_id, token)
        with self.entries() as entries:
            entry = self.taken(entries, item_id, token)
            if entry is not None:
                self.put_back(entries, entry)
        return entry is not None

    def put_back(self, entries: builtins.list[Any], entry: dict[str, Any]) -> None:  # noqa: ARG002 - for known-bad ones
        """Have an item wait again."""
        entry |= {"token": None, "at": None}

    def recover(self, older_than: float | None = None) -> int:
        age = self.checked_age(older_than)
        with self.entries() as entries:
            old = [entry for entry in entries if entry["token"] and self.is_old(entry, age)]
            for entry in old:
                self.put_back(entries, entry)
        return len(old)

    def checked_age(self, older_than: float | None) -> float:
        """Return the age that a take must have to be recovered."""
        return check_age(older_than)

    def is_old(self, entry: dict[str, Any], age: float) -> bool:
        """Whether an item was taken long enough ago."""
        return bool(round(now().timestamp() - entry["at"], 6) >= age)

    def size(self) -> int:
        return len(self.waiting(self.all()))

    def list(self) -> builtins.list[QueueItem]:
        waiting = self.waiting(self.all()) or self.answer(None) or []
        return [QueueItem(**{name: entry[name] for name in ("id", "value", "attempts")}) for entry in waiting]

    @contextlib.contextmanager
    def entries(self) -> Iterator[builtins.list[Any]]:
        """Yield all items to change."""
        with self.edit("queue") as document:
            yield document.setdefault("entries", [])

    def all(self) -> builtins.list[Any]:
        """Return all items."""
        entries: builtins.list[Any] = self.fields("queue").get("entries", [])
        return entries

    def waiting(self, entries: builtins.list[Any]) -> builtins.list[Any]:
        """Return those that wait."""
        return [entry for entry in entries if entry["token"] is None]

    def find(self, entries: builtins.list[Any], item_id: str) -> Any:
        """Return the item with an id, if there is one."""
        return next((entry for entry in entries if entry["id"] == item_id), None)

    def taken(self, entries: builtins.list[Any], item_id: str, token: str) -> Any:
        """Return the item with an id, if it was taken with a token."""
        entry = self.find(entries, item_id)
        return entry if entry and entry["token"] == token else None


class JsonLock(JsonFiles):
    """Locks: each is a document with the token of its last holder, and until when that holds it."""

    def acquire(self, name: str, ttl: float) -> Any:
        self.check(name)
        time = self.checked_time(ttl)
        with self.edit(name) as lock:
            if self.is_held(lock):
                return None
            lock |= {"name": name, "token": self.next_token(lock.get("token")), "until": self.after(time)}
            return lock["token"]

    def checked_time(self, ttl: float) -> float:
        """Return for how many seconds to hold a lock, or refuse it."""
        return check_ttl(ttl).total_seconds()

    def next_token(self, last: Any) -> Any:
        """Return the token after the last one."""
        return (last or 0) + 1

    def after(self, time: float) -> float:
        """Return the moment some seconds from now."""
        return round(now().timestamp() + time, 6)

    def is_held(self, lock: dict[str, Any]) -> bool:
        """Whether a lock is held now."""
        return bool(lock.get("until") and self.after(0) < lock["until"])

    def renew(self, name: str, token: Any, ttl: float) -> bool:
        self.check(name)
        time = self.checked_time(ttl)
        with self.edit(name) as lock:
            matches = self.may_renew(lock, token)
            if matches:
                lock["until"] = self.renewed(lock, time)
        return matches

    def may_renew(self, lock: dict[str, Any], token: Any) -> bool:
        """Whether a token renews a lock."""
        return self.matches(lock, token)

    def renewed(self, lock: dict[str, Any], time: float) -> float:  # noqa: ARG002 - for known-bad ones
        """Return until when a renewed lock is held."""
        return self.after(time)

    def release(self, name: str, token: Any) -> bool:
        self.check(name)
        with self.edit(name) as lock:
            matches = self.may_release(lock, token)
            if matches:
                self.end(lock)
        return matches

    def may_release(self, lock: dict[str, Any], token: Any) -> bool:
        """Whether a token releases a lock."""
        return self.matches(lock, token)

    def end(self, lock: dict[str, Any]) -> None:
        """Have nobody hold a lock."""
        lock["until"] = None

    def matches(self, lock: dict[str, Any], token: Any) -> bool:
        """Whether a token is that of the present holder."""
        return self.is_held(lock) and self.is_its(lock, token)

    def is_its(self, lock: dict[str, Any], token: Any) -> bool:
        """Whether a token is that of the last holder."""
        return bool(lock.get("token") == token)

    def held(self, name: str) -> bool:
        self.check(name)
        return self.is_held(self.answer(self.fields(name) or None) or {})


CORRECT_GENERIC_STORES: dict[str, type[JsonFiles]] = {"history": JsonHistory, "queue": JsonQueue, "lock": JsonLock}
"""The correct store of each of these contracts."""
