"""Handles: what workers have open on a store, by name; a restart closes them all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.oracle.history import Outcome

__tracebackhide__ = True

FIRST = "store"
"""The handle that calls go through unless a step names another."""


class Handles:
    """The open handles on a store at one home, each opened when it is first used."""

    def __init__(self, open_: Callable[[], Any], close: Callable[[Any], None], driver: Driver) -> None:
        self._open = open_
        self._close = close
        self.driver = driver
        self._stores: dict[str, Any] = {}

    def __getitem__(self, handle: str) -> Any:
        if handle not in self._stores:
            self._stores[handle] = self._open()
        return self._stores[handle]

    def outcome(self, handle: str, call: Call) -> Outcome:
        """Make a call through a handle, and return its outcome."""
        return self.driver.outcome(self[handle], call)

    def restart(self) -> None:
        """Close all handles; each is opened again when it is next used."""
        while self._stores:
            _, store = self._stores.popitem()
            self._close(store)

    def __enter__(self) -> Handles:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # An error while closing would only hide the failure before it.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.restart()


def close(store: Any) -> Any:
    """Close a handle: call its `aclose()` or `close()`, if it has one."""
    closes = getattr(store, "aclose", None) or getattr(store, "close", None)
    return closes() if closes else None
