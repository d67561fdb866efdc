"""Memory that lives at a home, as files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

S = TypeVar("S")


class Memories(dict[Path, S]):
    """One store for each home, made when it is first opened."""

    def __init__(self, make: Callable[[], S]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, home: Path) -> S:
        self[home] = self._make()
        return self[home]
