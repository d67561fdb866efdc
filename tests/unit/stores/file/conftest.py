"""Watching, and failing, the system calls of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stores.file.lockers import Program


class Calls:
    """Every call that changes a file or folder, by its name, and the name of what it changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        """Called before each of them; it may raise."""
        self._paths: dict[int, Path] = {}
        self._open = os.open
        monkeypatch.setattr(os, "open", self._opening)
        for name in ("write", "fsync", "ftruncate"):
            self._watch(monkeypatch, name, lambda fd: self._paths[fd].name)
        for name in ("rename", "unlink", "mkdir"):
            self._watch(monkeypatch, name, lambda path: Path(path).name)

    def start(self) -> None:
        """Forget what was called so far."""
        self.all.clear()

    def of(self, *names: str) -> list[str]:
        """Return the calls with these names."""
        return [call for call in self.all if call.split()[0] in names]

    def fail(self, wanted: str, error: OSError) -> None:
        """Let the next call of `wanted` raise, and none after it."""

        def before(call: str) -> None:
            if call == wanted:
                self.before = lambda _: None
                raise error

        self.before = before

    def _opening(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            self._note(f"create {Path(path).name}")
        fd = self._open(path, flags, *args, **kwargs)
        self._paths[fd] = Path(path)
        return fd

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str, what: Callable[[Any], str]) -> None:
        real = getattr(os, name)

        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(first, int) or first in self._paths:
                self._note(f"{name} {what(first)}")
            return real(first, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    def _note(self, call: str) -> None:
        self.all.append(call)
        self.before(call)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.end()
