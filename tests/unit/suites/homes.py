"""Memory that lives at a home, as files do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from pytest_wfstate.labs.storm import Medium

S = TypeVar("S")


class Memories(dict[Path, S]):
    """One store for each home, made when it is first opened."""

    def __init__(self, make: Callable[[], S]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, home: Path) -> S:
        self[home] = self._make()
        return self[home]


class InMemory:
    """What suites of stores in memory share: a memory for each home, until the end of the test."""

    medium: ClassVar[Medium] = "memory"
    store: ClassVar[Callable[[], Any]]

    @pytest.fixture(autouse=True)
    def _have_memories(self) -> Iterator[None]:
        self.stores: Memories[Any] = Memories(type(self).store)
        yield
        del self.stores  # pytest keeps this object for as long as it runs

    def open(self, home: Path) -> Any:
        return self.stores[home].handle()
