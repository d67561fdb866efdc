"""The history contract, in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.history import HistoryStore, check_items, check_limit
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.stores.memory.base import MemoryStore


class MemoryHistoryStore(MemoryStore, HistoryStore):
    """Keeps histories in memory, each item as JSON text. A history without items is not kept."""

    def __init__(self, *, clock: Clock = now) -> None:
        super().__init__(clock=clock)
        self._histories: dict[str, tuple[str, ...]] = {}

    def append(self, session_id: str, items: Sequence[Any]) -> None:
        check_id("session id", session_id)
        texts = tuple(map(json.dumps, check_items(items)))
        with self._lock:
            self._set(session_id, self._histories.get(session_id, ()) + texts)

    def read(self, session_id: str, limit: int | None = None) -> list[Any]:
        check_id("session id", session_id)
        limit = check_limit(limit)
        with self._lock:
            texts = self._histories.get(session_id, ())
        return [json.loads(text) for text in texts[0 if limit is None else max(0, len(texts) - limit) :]]

    def pop(self, session_id: str) -> Any:
        check_id("session id", session_id)
        with self._lock:
            texts = self._histories.get(session_id, ())
            self._set(session_id, texts[:-1])
        return json.loads(texts[-1]) if texts else None

    def clear(self, session_id: str) -> None:
        check_id("session id", session_id)
        with self._lock:
            self._set(session_id, ())

    def _set(self, session_id: str, texts: tuple[str, ...]) -> None:
        if texts:
            self._histories[session_id] = texts
        else:
            self._histories.pop(session_id, None)
