"""The history contract, in a folder: one journal per session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self, Unpack

from pydantic import Field

from pytest_wfstate.contracts.history import HistoryStore, check_items, check_limit
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.records import Flag, Json, Record, Text, plain_json
from pytest_wfstate.stores.file.base import FileSettings, FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.file.journal import Journal


class _HistoryChange(Record):
    """A change: items at the end, or the newest one gone."""

    append: list[Json] = Field(default_factory=list)
    pop: Flag = False


class _SessionDocument(Record):
    """A journal's document: the history of one session."""

    session_id: Text
    items: list[Json] = Field(default_factory=list)

    @classmethod
    def blank(cls, *ids: str) -> Self:
        (session_id,) = ids
        return cls(session_id=session_id)

    def ids(self) -> tuple[str, ...]:
        return (self.session_id,)

    def apply(self, change: bytes | str) -> None:
        made = _HistoryChange.model_validate_json(change)
        self.items.extend(made.append)
        if made.pop:
            del self.items[-1:]

    def size(self) -> int:
        return len(self.items)


class FileHistoryStore(FileStore, HistoryStore):
    """Keeps the history of session `chat-1` in `chat-1.journal`."""

    contract = "history"

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._sessions = Journal(self._folder, ".journal", _SessionDocument)

    def close(self) -> None:
        super().close()
        self._sessions.forget()

    def append(self, session_id: str, items: Sequence[Any]) -> None:
        check_id("session id", session_id)
        new = check_items(items)
        if new:
            with self._sessions.edit(session_id) as edit:
                edit.apply(_HistoryChange(append=new))

    def read(self, session_id: str, limit: int | None = None) -> list[Any]:
        check_id("session id", session_id)
        limit = check_limit(limit)
        with self._sessions.view(session_id) as session:
            items = [] if session is None else session.items
            return list(map(plain_json, items[0 if limit is None else max(0, len(items) - limit) :]))

    def pop(self, session_id: str) -> Any:
        check_id("session id", session_id)
        if not self._folder.exists():
            return None
        with self._sessions.edit(session_id) as edit:
            if not edit.document.items:
                return None
            newest = edit.document.items[-1]
            edit.apply(_HistoryChange(pop=True))
        return newest

    def clear(self, session_id: str) -> None:
        self._sessions.delete(check_id("session id", session_id))
