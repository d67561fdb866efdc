"""Queue stores that lose items, hand one out twice, or mix up their order."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from pytest_wfstate.contracts.clock import now
from pytest_wfstate.contracts.queue import QueueItem, TakenItem
from pytest_wfstate.stores.file.folder import LockedFolder
from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_generic_stores import JsonQueue


@known_bad(
    "queue",
    "take.oldest take.hides size.waiting put.again put.any-json put.refused take.many",
    "done.after-restart done.others retry.keeps-place recover.keeps-place recover.all",
    "token.others recover.older-than",
)
class NewestFirst(JsonQueue):
    """The newest item is taken first, as from a stack. While there is new work, the oldest never gets done."""

    def next(self, waiting: list[Any]) -> Any:
        return waiting[-1] if waiting else None


@known_bad("queue", "take.many take.oldest put.any-json done.others")
class SortedById(JsonQueue):
    """The item with the lowest id is taken first, because ids are numbers. `item 10` comes before `item 9`."""

    def next(self, waiting: list[Any]) -> Any:
        return min(waiting, key=lambda entry: entry["id"], default=None)


@known_bad("queue", "take.empty take.oldest done.ends put.again put.taken take.one-winner take.elsewhere")
class TakeWantsAnItem(JsonQueue):
    """Taking from an empty queue raises an error. A worker without work crashes, and is restarted again and again."""

    def next(self, waiting: list[Any]) -> Any:
        return waiting[0]


@known_bad(
    "queue",
    "take.hides take.one-winner take.oldest take.empty recover.waits size.waiting put.again",
    "put.taken put.any-json put.refused take.many take.elsewhere done.after-restart",
    "done.others retry.keeps-place recover.keeps-place recover.all ids.refused",
    "done.token-lost done.token-once retry.token-lost retry.token-once token.others",
    "token.refused recover.older-than recover.age-of-last-take recover.bad-age",
)
class TakenStillWaits(JsonQueue):
    """A taken item waits until it is done, so that nothing is lost if its worker dies. Each worker takes the same."""

    def waiting(self, entries: list[Any]) -> list[Any]:
        return entries


@known_bad(
    "queue",
    "take.one-winner take.oldest take.empty put.again put.taken put.any-json put.refused",
    "take.many done.after-restart done.others retry.keeps-place recover.keeps-place",
    "recover.all token.others recover.older-than",
)
class TakesItsOwnAgain(JsonQueue):
    """A handle that asks again gets the item that it took before, as if the call were a retry."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._own: dict[str, TakenItem] = {}

    def take(self) -> TakenItem | None:
        for entry in self.all():
            own = self._own.get(entry["id"])
            if own and own.token == entry["token"]:
                return own
        taken = super().take()
        if taken:
            self._own[taken.id] = taken
        return taken


@known_bad(
    "queue",
    "done.ends token.new size.waiting put.after-done take.elsewhere done.after-restart",
    "done.others done.token-once retry.token-lost",
)
class DoneWaitsAgain(JsonQueue):
    """An item that is done only loses its token. It is taken again, and the customer is charged twice."""

    def end(self, entries: list[Any], entry: dict[str, Any]) -> None:
        self.put_back(entries, entry)


@known_bad(
    "queue",
    "retry.waits put.taken take.counts take.elsewhere done.after-restart done.others",
    "retry.keeps-place retry.token-once token.new",
)
class RetryIsDone(JsonQueue):
    """An item that is to be retried is removed, as if its worker would put it again. The failed work is lost."""

    def retry(self, item_id: str, token: str) -> bool:
        return self.done(item_id, token)


@known_bad("queue", "retry.keeps-place recover.keeps-place done.others recover.all ids.refused")
class BackToTheEnd(JsonQueue):
    """An item that waits again goes to the end of the queue. After a restart, work is done in another order."""

    def put_back(self, entries: list[Any], entry: dict[str, Any]) -> None:
        super().put_back(entries, entry)
        entries.remove(entry)
        entries.append(entry)


@known_bad(
    "queue",
    "recover.waits take.counts take.elsewhere done.others recover.keeps-place recover.all",
    "ids.refused done.token-lost done.token-once retry.token-lost retry.token-once",
    "token.others token.refused token.new recover.older-than recover.older-than-limit",
    "recover.age-of-last-take recover.bad-age",
)
class RecoversNothing(JsonQueue):
    """Recovery only counts what is taken. The items of a worker that died are never done."""

    def recover(self, older_than: float | None = None) -> int:
        age = self.checked_age(older_than)
        return sum(1 for entry in self.all() if entry["token"] and self.is_old(entry, age))


@known_bad("queue", "recover.all recover.keeps-place token.others")
class RecoversOne(JsonQueue):
    """Recovery stops at the first item that it finds. A worker that died with two items leaves one behind."""

    def recover(self, older_than: float | None = None) -> int:
        age = self.checked_age(older_than)
        with self.entries() as entries:
            old = [entry for entry in entries if entry["token"] and self.is_old(entry, age)]
            for entry in old[:1]:
                self.put_back(entries, entry)
        return len(old)


@known_bad(
    "queue",
    "recover.nothing done.after-restart done.others recover.keeps-place recover.all",
    "ids.refused done.token-lost recover.older-than",
)
class CountsAllThatWait(JsonQueue):
    """Recovery returns how many items wait afterwards. A dashboard reports dead workers where there are none."""

    def recover(self, older_than: float | None = None) -> int:
        super().recover(older_than)
        return self.size()


@known_bad(
    "queue",
    "take.counts retry.waits recover.waits put.taken take.elsewhere done.after-restart",
    "done.others retry.keeps-place recover.keeps-place recover.all ids.refused",
    "done.token-lost done.token-once retry.token-lost retry.token-once token.others",
    "token.refused token.new recover.older-than recover.older-than-limit",
    "recover.age-of-last-take recover.bad-age",
)
class AttemptsStartAgain(JsonQueue):
    """An item that waits again counts from 0. One that fails each time is tried for ever."""

    def put_back(self, entries: list[Any], entry: dict[str, Any]) -> None:
        super().put_back(entries, entry)
        entry["attempts"] = 0


@known_bad(
    "queue",
    "size.waiting take.hides recover.waits put.taken take.elsewhere done.others ids.refused",
    "done.token-lost done.token-once retry.token-lost retry.token-once token.others",
    "token.refused recover.older-than recover.age-of-last-take recover.bad-age",
)
class SizeCountsAll(JsonQueue):
    """The size counts taken items too. A worker that waits for an empty queue waits for itself."""

    def size(self) -> int:
        return len(self.all())


@known_bad("queue", "put.again save.survives-restart")
class PutReplaces(JsonQueue):
    """Putting an id that waits replaces its value. Of two orders with the same id, the second is done for the first."""

    def put(self, item_id: str, value: Any) -> None:
        super().put(item_id, value)
        with self.entries() as entries:
            entry = self.find(entries, item_id)
            if entry["token"] is None:
                entry["value"] = self.checked_value(value)


@known_bad("queue", "put.taken race.put-done")
class PutLooksAtWaitingOnly(JsonQueue):
    """Putting an id that is taken adds it a second time. A retry after a timeout is work done twice."""

    def find(self, entries: list[Any], item_id: str) -> Any:
        return next((entry for entry in reversed(entries) if entry["id"] == item_id), None)

    def put(self, item_id: str, value: Any) -> None:
        self.check(item_id)
        value = self.checked_value(value)
        with self.entries() as entries:
            if not self.find(self.waiting(entries), item_id):
                entries.append({"id": item_id, "value": value, "attempts": 0, "token": None, "at": None})


@known_bad("queue", "put.after-done take.elsewhere done.token-once token.new")
class DoneForGood(JsonQueue):
    """Ids of items that are done are remembered, so that none is done twice. A daily job runs once."""

    def end(self, entries: list[Any], entry: dict[str, Any]) -> None:  # noqa: ARG002 - it stays
        entry["token"] = "done"

    def is_old(self, entry: dict[str, Any], age: float) -> bool:
        return entry["token"] != "done" and super().is_old(entry, age)


@known_bad("queue", "put.refused")
class PutsUnchecked(JsonQueue):
    """A value is stored without a check. One that JSON does not have comes back as something else or not at all."""

    def checked_value(self, value: Any) -> Any:
        return value


@known_bad("queue", "put.any-json values.falsy")
class ValuesAreObjects(JsonQueue):
    """A value that is not an object is stored as text, because all were at first. A number comes back as text."""

    def checked_value(self, value: Any) -> Any:
        checked = super().checked_value(value)
        return checked if isinstance(checked, (dict, list, type(None))) else str(checked)


@known_bad("queue", "values.falsy")
class FalsyIsNone(JsonQueue):
    """A value is stored `if value`, and else as None. An empty list of orders looks like a missing one."""

    def checked_value(self, value: Any) -> Any:
        return super().checked_value(value) or None


@known_bad(
    "queue",
    "save.load save.survives-restart values.falsy values.unicode values.large ids.any-text",
    "ids.never-collide aliasing.saved aliasing.loaded take.hides retry.waits recover.waits",
    "recover.nothing put.again put.taken put.after-done put.any-json put.exact-numbers",
    "put.refused take.many take.counts take.elsewhere done.after-restart done.others",
    "retry.keeps-place recover.keeps-place recover.all ids.refused done.token-lost",
    "done.token-once retry.token-lost retry.token-once token.others token.refused",
    "recover.older-than recover.older-than-limit recover.bad-age",
)
class ListsWithoutValues(JsonQueue):
    """The list leaves out the values, to be short. Whoever looks for an order in it finds none."""

    def list(self) -> list[QueueItem]:
        return [item.model_copy(update={"value": None}) for item in super().list()]


@known_bad("queue", "aliasing.saved aliasing.loaded")
class KeepsTheCallersValue(JsonQueue):
    """A handle keeps the values that it was given, and lists them. When the caller changes one, the queue changes."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._given: dict[str, Any] = {}

    def checked_value(self, value: Any) -> Any:
        checked = super().checked_value(value)
        self._given[json.dumps(checked)] = value
        return checked

    def list(self) -> list[QueueItem]:
        items = super().list()
        for item in items:
            vars(item)["value"] = self._given.get(json.dumps(item.value), item.value)
        return items


@known_bad(
    "queue",
    "done.token-lost done.token-once retry.token-lost retry.token-once token.others",
    "power.done power.retry race.take-done",
)
class IdsAreEnough(JsonQueue):
    """Tokens are not compared. A worker that was taken for dead ends the work of the one that took over."""

    def taken(self, entries: list[Any], item_id: str, token: str) -> Any:
        entry = self.find(entries, item_id)
        return entry if token and entry and entry["token"] else None


@known_bad("queue", "token.new power.retry kill.takeover power.takeover")
class TokenOfTheItem(JsonQueue):
    """An item has one token for all its takes. A worker that was taken for dead has the one of its successor."""

    def new_token(self, entry: dict[str, Any]) -> str:
        return f"token-{entry['id']}"


@known_bad("queue", "token.others race.take-done")
class AnyTokenWillDo(JsonQueue):
    """A token ends whatever item is named with it. A mix-up in a worker ends the work of another."""

    def taken(self, entries: list[Any], item_id: str, token: str) -> Any:
        entry = self.find(entries, item_id)
        return entry if entry and entry["token"] and token in {each["token"] for each in entries} else None


@known_bad(
    "queue",
    "done.after-restart put.taken take.elsewhere retry.token-lost token.new",
)
class OnlyItsOwnHandle(JsonQueue):
    """Only the handle that took an item can end it. A worker that was restarted has to do the work again."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._tokens: set[str] = set()

    def new_token(self, entry: dict[str, Any]) -> str:
        token = super().new_token(entry)
        self._tokens.add(token)
        return token

    def taken(self, entries: list[Any], item_id: str, token: str) -> Any:
        return super().taken(entries, item_id, token) if token in self._tokens else None


@known_bad("queue", "done.others")
class DoneEndsAllThatBeginAlike(JsonQueue):
    """An item that is done is removed with all whose ids begin alike, as its parts. `item 1` takes `item 10` along."""

    def end(self, entries: list[Any], entry: dict[str, Any]) -> None:
        entries[:] = [other for other in entries if not other["id"].startswith(entry["id"])]


@known_bad("queue", "recover.older-than recover.older-than-limit recover.age-of-last-take")
class AgesAreIgnored(JsonQueue):
    """Recovery takes back whatever is taken. A second worker that starts steals the work of the first."""

    def is_old(self, entry: dict[str, Any], age: float) -> bool:  # noqa: ARG002 - the bug
        return True


@known_bad("queue", "recover.older-than-limit")
class OlderThanTheLimit(JsonQueue):
    """An item that was taken exactly as long ago as the limit is left alone."""

    def is_old(self, entry: dict[str, Any], age: float) -> bool:
        return bool(round(now().timestamp() - entry["at"], 6) > age)


@known_bad("queue", "recover.age-of-last-take")
class AgeOfTheFirstTake(JsonQueue):
    """The age of a take counts from the first one. Whoever retries an old item loses it to the next recovery."""

    def put_back(self, entries: list[Any], entry: dict[str, Any]) -> None:
        entry.setdefault("first", entry["at"])
        super().put_back(entries, entry)

    def is_old(self, entry: dict[str, Any], age: float) -> bool:
        return super().is_old({**entry, "at": entry.get("first", entry["at"])}, age)


@known_bad("queue", "recover.bad-age")
class AnyAgeWillDo(JsonQueue):
    """An age is not checked. One that was computed wrongly, and is negative, takes back the work of everyone."""

    def checked_age(self, older_than: float | None) -> float:
        return older_than if isinstance(older_than, (int, float)) else -math.inf


class ValuesInFiles(JsonQueue):
    """Values are in files of their own, which the items name."""

    def put(self, item_id: str, value: Any) -> None:
        self.check(item_id)
        text = json.dumps(self.checked_value(value)).encode()
        with self.folder.exclusive() as held:
            entries = self.all()
            if self.find(entries, item_id) is None:
                self.write_value(held, self.file_of(item_id), text)
                entries.append({"id": item_id, "value": None, "attempts": 0, "token": None, "at": None})
                self.write(held, self.name("queue"), json.dumps({"entries": entries}).encode())

    def write_value(self, held: LockedFolder, name: str, text: bytes) -> None:
        """Write the file of a value."""
        held.replace(name, text)

    def file_of(self, item_id: str) -> str:
        """Return the name of the file of an item's value."""
        raise NotImplementedError

    def waiting(self, entries: list[Any]) -> list[Any]:
        for entry in entries:
            entry["value"] = json.loads(self.folder.read(self.file_of(entry["id"])) or b"null")
        return super().waiting(entries)


@known_bad("queue", "ids.any-text ids.stay-inside")
class IdsAsPaths(ValuesInFiles):
    """Large values are kept in files named after their ids, unchanged. `../outside` ends up in the folder above."""

    def file_of(self, item_id: str) -> str:
        return f"{item_id}.value"

    def write_value(self, held: LockedFolder, name: str, text: bytes) -> None:
        held.path(name).parent.mkdir(parents=True, exist_ok=True)
        super().write_value(held, name, text)


@known_bad("queue", "ids.never-collide")
class SanitisedIds(ValuesInFiles):
    """Values are in files named after their ids, with `_` for all but letters and digits. `a/b` and `a_b` share one."""

    def file_of(self, item_id: str) -> str:
        return self.name(re.sub(r"[^\w-]", "_", item_id)[:100] + ".value")
