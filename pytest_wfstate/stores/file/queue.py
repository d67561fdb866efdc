"""The queue contract, in a folder: one journal, to which each call appends what it changed."""

from __future__ import annotations

import builtins
import datetime
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self, Unpack

from pydantic import Field

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.moments import Moment
from pytest_wfstate.contracts.paused import check_age
from pytest_wfstate.contracts.queue import QueueItem, QueueStore, TakenItem
from pytest_wfstate.contracts.records import Record, Text, left_out, plain_json
from pytest_wfstate.stores.file.base import FileSettings, FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.file.journal import Journal

_NAME = "queue"


class _Entry(QueueItem):
    """An item, and if it is taken, by which token and when."""

    token: Text | None = left_out()
    taken_at: Moment | None = left_out()

    def was_taken(self, moment: datetime.datetime, age: float) -> bool:
        """Whether it was taken at least `age` seconds before a moment."""
        return self.taken_at is not None and (moment - self.taken_at).total_seconds() >= age


class _Take(Record):
    """Which item was taken, by which token and when."""

    id: Text
    token: Text
    at: Moment


class _QueueChange(Record):
    """A change: an item more, one taken, one gone, or some that wait again."""

    put: QueueItem | None = left_out()
    take: _Take | None = left_out()
    done: Text | None = left_out()
    back: list[Text] | None = left_out()


class _QueueDocument(Record):
    """A journal's document: all items, in the order in which they were put."""

    entries: dict[Text, _Entry] = Field(default_factory=dict)

    @classmethod
    def blank(cls, *_: str) -> Self:
        return cls()

    def ids(self) -> tuple[str, ...]:
        return (_NAME,)

    def apply(self, change: bytes | str) -> None:
        made = _QueueChange.model_validate_json(change)
        if made.put is not None:
            self.entries[made.put.id] = _Entry(**dict(made.put))
        if made.take is not None:
            entry = self.entries[made.take.id]
            taken = {"attempts": entry.attempts + 1, "token": made.take.token, "taken_at": made.take.at}
            self.entries[made.take.id] = entry.model_copy(update=taken)
        if made.done is not None:
            del self.entries[made.done]
        for item_id in made.back or ():
            self.entries[item_id] = self.entries[item_id].model_copy(update={"token": None, "taken_at": None})

    def size(self) -> int:
        return len(self.entries)

    def waiting(self) -> Iterator[_Entry]:
        """Yield the items that wait, oldest first."""
        return (entry for entry in self.entries.values() if entry.token is None)


class FileQueueStore(FileStore, QueueStore):
    """Keeps a queue in `queue.journal`. Each handle has all of it in memory, too."""

    contract = "queue"

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        super().__init__(directory, durability, **settings)
        self._queue = Journal(self._folder, ".journal", _QueueDocument)

    def close(self) -> None:
        super().close()
        self._queue.forget()

    def put(self, item_id: str, value: Any) -> None:
        item = QueueItem(id=check_id("item id", item_id), value=plain_json(value))
        with self._queue.edit(_NAME) as edit:
            if item_id not in edit.document.entries:
                edit.apply(_QueueChange(put=item))

    def take(self) -> TakenItem | None:
        if not self._folder.exists():
            return None
        with self._queue.edit(_NAME) as edit:
            entry = next(edit.document.waiting(), None)
            if entry is None:
                return None
            take = _Take(id=entry.id, token=uuid.uuid4().hex, at=now())
            edit.apply(_QueueChange(take=take))
            return TakenItem(id=entry.id, value=entry.value, attempts=entry.attempts + 1, token=take.token)

    def done(self, item_id: str, token: str) -> bool:
        return self._end(item_id, token, lambda: _QueueChange(done=item_id))

    def retry(self, item_id: str, token: str) -> bool:
        return self._end(item_id, token, lambda: _QueueChange(back=[item_id]))

    def recover(self, older_than: float | None = None) -> int:
        age = check_age(older_than)
        if not self._folder.exists():
            return 0
        with self._queue.edit(_NAME) as edit:
            moment = now()
            back = [entry.id for entry in edit.document.entries.values() if entry.was_taken(moment, age)]
            if back:
                edit.apply(_QueueChange(back=back))
        return len(back)

    def size(self) -> int:
        with self._queue.view(_NAME) as queue:
            return 0 if queue is None else sum(1 for _ in queue.waiting())

    def list(self) -> builtins.list[QueueItem]:
        with self._queue.view(_NAME) as queue:
            waiting = [] if queue is None else list(queue.waiting())
            return [QueueItem(id=entry.id, value=entry.value, attempts=entry.attempts) for entry in waiting]

    def _end(self, item_id: str, token: str, change: Callable[[], _QueueChange]) -> bool:
        check_id("item id", item_id)
        check_id("token", token)
        if not self._folder.exists():
            return False
        with self._queue.edit(_NAME) as edit:
            entry = edit.document.entries.get(item_id)
            matches = entry is not None and entry.token == token
            if matches:
                edit.apply(change())
        return matches
