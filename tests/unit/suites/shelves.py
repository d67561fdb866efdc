"""A small contract of a user, with a right store in one file, for tests of what contracts can say."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

from pytest_wfstate.suites import Contract, Operation, Suite


class Shelf:
    """The reference: things by their key."""

    def __init__(self) -> None:
        self.things: dict[str, Any] = {}

    def put(self, key: str, thing: Any) -> None:
        self.things[key] = thing

    def get(self, key: str) -> Any:
        return self.things.get(key)

    def clear(self, key: str) -> None:
        self.things.pop(key, None)

    def first(self, limit: int) -> list[str]:
        return sorted(self.things)[:limit]


def of_key(key: str, *_: Any) -> list[str]:
    return [key]


def _keys(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids))


def _puts(ids: Sequence[str]) -> Any:
    return st.tuples(st.sampled_from(ids), st.sampled_from(["hat", "coat"]))


PUT = Operation("put", _puts, mutates=True, positional=2, required=True, keys=of_key)
GET = Operation("get", _keys, required=True, keys=of_key)
CLEAR = Operation("clear", _keys, mutates=True, keys=of_key)
FIRST = Operation("first", lambda _: st.tuples(st.integers(0, 3)))


def contract(*operations: Operation, **options: Any) -> Contract:
    """Return the contract of shelves, with some of its operations replaced, or added."""
    named = {operation.name: operation for operation in (PUT, GET, *operations)}
    put, get = named["put"], named["get"]
    options = {"write": lambda key, number: put(key, f"thing {number}"), **options}
    return Contract(
        "shelf", [*named.values()], reference=lambda _: Shelf(), reads=lambda ids: [get(key) for key in ids], **options
    )


class FileShelf:
    """A right store: one JSON file, which is replaced as a whole."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def put(self, key: str, thing: Any) -> None:
        self.write(self.read() | {key: thing})

    def get(self, key: str) -> Any:
        return self.read().get(key)

    def clear(self, key: str) -> None:
        self.write({other: thing for other, thing in self.read().items() if other != key})

    def first(self, limit: int) -> list[str]:
        return sorted(self.read())[:limit]

    def read(self) -> dict[str, Any]:
        path = self.home / "shelf.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def write(self, things: dict[str, Any]) -> None:
        (self.home / "new.json").write_text(json.dumps(things))
        os.replace(self.home / "new.json", self.home / "shelf.json")


class ShelfSuite(Suite):
    store: ClassVar[type[Any]]

    def open(self, home: Path) -> Any:
        return type(self).store(home)
