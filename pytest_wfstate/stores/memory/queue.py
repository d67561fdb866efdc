"""The queue contract, in memory."""

from __future__ import annotations

import builtins
import datetime
import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import check_age
from pytest_wfstate.contracts.queue import QueueItem, QueueStore, TakenItem
from pytest_wfstate.contracts.records import plain_json
from pytest_wfstate.stores.memory.base import MemoryStore


class Entry(NamedTuple):
    """An item: its place, its value as JSON, how often it was taken, and by which token and when, unless it waits."""

    place: int
    value: str
    attempts: int = 0
    token: str | None = None
    at: datetime.datetime | None = None


class MemoryQueueStore(MemoryStore, QueueStore):
    """Keeps a queue in memory. Every change of an item is one assignment."""

    def __init__(self, *, clock: Clock = now, new_token: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        super().__init__(clock=clock)
        self._new_token = new_token
        self._entries: dict[str, Entry] = {}

    def put(self, item_id: str, value: Any) -> None:
        check_id("item id", item_id)
        text = json.dumps(plain_json(value))
        with self._lock:
            if item_id not in self._entries:
                last = max((entry.place for entry in self._entries.values()), default=0)
                self._entries[item_id] = Entry(last + 1, text)

    def take(self) -> TakenItem | None:
        with self._lock:
            waiting = self._waiting()
            if not waiting:
                return None
            item_id = waiting[0]
            entry = self._entries[item_id]
            token = self._new_token()
            taken = entry._replace(attempts=entry.attempts + 1, token=token, at=self._clock())
            self._entries[item_id] = taken
        return TakenItem(id=item_id, value=json.loads(taken.value), attempts=taken.attempts, token=token)

    def done(self, item_id: str, token: str) -> bool:
        with self._lock:
            matches = self._matches(item_id, token)
            if matches:
                del self._entries[item_id]
        return matches

    def retry(self, item_id: str, token: str) -> bool:
        with self._lock:
            matches = self._matches(item_id, token)
            if matches:
                self._put_back(item_id)
        return matches

    def recover(self, older_than: float | None = None) -> int:
        return self.recover_some(list(self._entries), older_than)

    def recover_some(self, item_ids: Iterable[str], older_than: float | None = None) -> int:
        """Recover only these items: a recovery that dies may have reached any subset."""
        age, recovered = check_age(older_than), 0
        with self._lock:
            moment = self._clock()
            for item_id in item_ids:
                taken_at = self._entries[item_id].at
                if taken_at is not None and (moment - taken_at).total_seconds() >= age:
                    self._put_back(item_id)
                    recovered += 1
        return recovered

    def size(self) -> int:
        with self._lock:
            return len(self._waiting())

    def list(self) -> builtins.list[QueueItem]:
        with self._lock:
            waiting = [(item_id, self._entries[item_id]) for item_id in self._waiting()]
        return [
            QueueItem(id=item_id, value=json.loads(entry.value), attempts=entry.attempts) for item_id, entry in waiting
        ]

    def _waiting(self) -> builtins.list[str]:
        waiting = [item_id for item_id, entry in self._entries.items() if entry.token is None]
        return sorted(waiting, key=lambda item_id: self._entries[item_id].place)

    def _matches(self, item_id: str, token: str) -> bool:
        check_id("item id", item_id)
        check_id("token", token)
        entry = self._entries.get(item_id)
        return entry is not None and entry.token == token

    def _put_back(self, item_id: str) -> None:
        self._entries[item_id] = self._entries[item_id]._replace(token=None, at=None)
