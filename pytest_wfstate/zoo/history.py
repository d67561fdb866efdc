"""History stores that lose items, or mix up their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_wfstate.zoo.base import known_bad
from pytest_wfstate.zoo.correct_generic_stores import JsonHistory


@known_bad(
    "history",
    "append.adds save.survives-restart read.limit pop.newest handles.see-each-other",
    "values.falsy values.unicode values.large append.again append.any-json",
    "append.exact-numbers append.many append.elsewhere append.others pop.falsy pop.elsewhere",
)
class NewestFirst(JsonHistory):
    """New items are put in front, where a page shows them first. The model reads its conversation backwards."""

    def added(self, items: list[Any], new: list[Any]) -> list[Any]:
        return [*reversed(new), *items]


@known_bad("history", "append.again append.elsewhere")
class SkipsEqualItems(JsonHistory):
    """An item that is there already is not added, in case the call is a retry. The user's second "yes" is lost."""

    def added(self, items: list[Any], new: list[Any]) -> list[Any]:
        return [*items, *(item for item in new if item not in items)]


@known_bad("history", "append.many values.large")
class KeepsTheLastThousand(JsonHistory):
    """Only the last thousand items are kept, since no model reads more. An audit finds the beginning gone."""

    def added(self, items: list[Any], new: list[Any]) -> list[Any]:
        return super().added(items, new)[-1000:]


@known_bad("history", "append.nothing append.a-list")
class RecordsEmptyTurns(JsonHistory):
    """A turn without items is recorded as an empty message. The provider refuses the next request."""

    def append(self, session_id: str, items: Any) -> None:
        super().append(session_id, items or [{}])


@known_bad("history", "append.a-list")
class TakesAnythingApart(JsonHistory):
    """Whatever is passed is iterated over. A text that was not put into a list is stored letter by letter."""

    def checked_items(self, items: Any) -> list[Any]:
        return super().checked_items(list(items))


@known_bad(
    "history",
    "append.any-json values.falsy append.exact-numbers append.many pop.falsy",
)
class TextsAndObjects(JsonHistory):
    """An item that is not a message is stored as text, because all were at first. A number comes back as text."""

    def checked_items(self, items: Any) -> list[Any]:
        return [item if isinstance(item, (str, dict)) else str(item) for item in super().checked_items(items)]


@known_bad("history", "values.falsy append.many pop.falsy")
class FalsyIsSkipped(JsonHistory):
    """Items are added only `if item`. An empty answer of a tool is lost, and the calls no longer match the answers."""

    def added(self, items: list[Any], new: list[Any]) -> list[Any]:
        return super().added(items, [item for item in new if item])


@known_bad(
    "history",
    "append.all-or-none kill.append race.append-append race.append-pop race.append-clear",
    "race.read power.append errors.append",
)
class OneByOne(JsonHistory):
    """Items are checked and stored one after the other.

    After a crash, or a bad item, a call of a tool is there without its answer.
    """

    def append(self, session_id: str, items: Any) -> None:
        if not isinstance(items, list):
            return super().append(session_id, items)
        self.check(session_id)
        for item in items:
            super().append(session_id, [item])
        return None


@known_bad("history", "read.limit")
class ZeroIsNoLimit(JsonHistory):
    """The last items are `items[-limit:]`, which is all of them if the limit is 0."""

    def limited(self, items: list[Any], limit: int | None) -> list[Any]:
        super().limited(items, limit)
        return items if limit is None else items[-limit:]


@known_bad("history", "read.limit append.many")
class FirstItems(JsonHistory):
    """A limit gives the first items and not the last. The model never sees the latest question."""

    def limited(self, items: list[Any], limit: int | None) -> list[Any]:
        return items[: len(super().limited(items, limit))]


@known_bad("history", "read.bad-limit")
class AnyLimitWillDo(JsonHistory):
    """A limit is not checked. A budget that has become negative reads an empty history, as if nothing had been said."""

    def limited(self, items: list[Any], limit: int | None) -> list[Any]:
        return super().limited(items, limit and max(0, limit))


@known_bad("history", "pop.newest append.exact-numbers append.others pop.falsy pop.elsewhere")
class PopsTheOldest(JsonHistory):
    """Pop takes the oldest item, as from a queue. Undoing the last turn forgets the first."""

    def taken(self, items: list[Any]) -> Any:
        return items.pop(0) if items else None


@known_bad(
    "history",
    "pop.empty append.nothing pop.elsewhere clear.elsewhere",
    "errors.pop",
)
class PopWantsAnItem(JsonHistory):
    """Popping from an empty history raises an error. Undoing once too often ends the session."""

    def taken(self, items: list[Any]) -> Any:
        return items.pop()


@known_bad("history", "pop.falsy")
class PopsUntilTruthy(JsonHistory):
    """Pop skips what looks empty. Undoing an empty answer undoes the question as well."""

    def taken(self, items: list[Any]) -> Any:
        item = super().taken(items)
        return item if item or not items else self.taken(items)


@known_bad("history", "aliasing.saved aliasing.loaded")
class KeepsTheCallersItems(JsonHistory):
    """A handle keeps the items that it was given, and hands them out as long as they are what the file holds.

    When the caller reuses an object, the history changes.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._given: dict[str, list[Any]] = {}

    def checked_items(self, items: Any) -> list[Any]:
        checked = super().checked_items(items)
        self._given[json.dumps(checked)] = items
        return checked

    def items(self, session_id: str) -> list[Any]:
        items = super().items(session_id)
        return self._given.get(json.dumps(items), items)
