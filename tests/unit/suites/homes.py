"""Memory stores by home, as files are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from pytest_wfstate.labs.storm import Medium

S = TypeVar("S")


class MemoryStores(dict[Path, S]):
    """One store for each home, made when it is first opened."""

    def __init__(self, make: Callable[[], S]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, home: Path) -> S:
        self[home] = self._make()
        return self[home]


class InMemory:
    """What suites of memory stores share: a store for each home, until the end of the test."""

    medium: ClassVar[Medium] = "memory"
    store: ClassVar[Callable[[], Any]]

    @pytest.fixture(autouse=True)
    def _make_stores(self) -> Iterator[None]:
        self.stores: MemoryStores[Any] = MemoryStores(type(self).store)
        yield
        del self.stores  # pytest keeps this object for as long as it runs

    def open(self, home: Path) -> Any:
        return self.stores[home].handle()
