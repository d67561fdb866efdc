"""Handles: what workers have open on a store, by name; a restart closes them all."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pytest_wfstate.contracts.base import Call
from pytest_wfstate.engine.driver import Driver
from pytest_wfstate.errors import AdapterError, CannotCompare, StoreTimeout
from pytest_wfstate.oracle.history import Outcome, Refused

__tracebackhide__ = True

_listdir = os.listdir  # the real one, whatever stands in for it

FIRST = "store"
"""The handle that calls go through unless a step names another."""

_NO_OUTCOMES = (AdapterError, CannotCompare, StoreTimeout, pytest.exit.Exception)
"""Errors that are never the outcome of a call."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that is open, and how to close it."""

    store: Any
    close: Callable[[], object]
    has_close: bool = True
    """Whether there is anything that closing it does."""

    def finish(self) -> bool:
        """Close it. Return whether that did anything."""
        self.close()
        return self.has_close


def open_store(
    driver: Driver,
    open_: Callable[[], Any],
    close: Callable[[Any], Any],
    *,
    adapt: Callable[[Any], Any] = lambda store: store,
    methods: Iterable[str] = (),
) -> OpenStore:
    """Open a store, and adapt it. What is opened may be a context manager that gives the store.

    An object that has one of these methods is the store itself, whatever else it is.

    Raises:
        AdapterError: `adapt` gives nothing.
    """
    given = driver.run(open_, "open")
    enter = None if any(hasattr(given, name) for name in methods) else _method(given, "__aenter__", "__enter__")
    if enter is None:
        closes = close_method(given) is not None
        return OpenStore(_adapted(driver, adapt, given), lambda: driver.run(lambda: close(given), "close"), closes)
    store = driver.run(enter, "open")
    leave = _method(given, "__aexit__", "__exit__")
    return OpenStore(
        _adapted(driver, adapt, store), lambda: leave and driver.run(lambda: leave(None, None, None), "close")
    )


def _adapted(driver: Driver, adapt: Callable[[Any], Any], store: Any) -> Any:
    if store is None:
        return None
    adapted = driver.run(lambda: adapt(store), "adapt")
    if adapted is None:
        raise AdapterError("adapt() of the suite returned None. It must return what the calls are to be made on.")
    return adapted


def _method(value: Any, *names: str) -> Callable[..., Any] | None:
    """Return the first of these methods that a value's class has. Of an instance, `with` does not look at others."""
    return next((getattr(value, name) for name in names if hasattr(type(value), name)), None)


class Handles:
    """The open handles on a store at one home, each opened when it is first used.

    `errors` are those that the store is known to raise, whatever its contract says.
    """

    def __init__(
        self, open_: Callable[[], OpenStore], driver: Driver, errors: tuple[type[Exception], ...] = ()
    ) -> None:
        self._open = open_
        self.driver = driver
        self._errors = errors
        self._stores: dict[str, OpenStore] = {}
        self._before = 0
        """How many descriptors were open before the first handle was."""

    def __getitem__(self, handle: str) -> Any:
        if handle not in self._stores:
            self._before = self._before if self._stores else _descriptors()
            self._stores[handle] = self._open()
        return self._stores[handle].store

    def has_close(self, handle: str) -> bool:
        """Whether there is anything that closing an open handle does."""
        return self._stores[handle].has_close

    def outcome(self, handle: str, call: Call) -> Outcome:
        """Make a call through a handle, and return its outcome. One of `errors` is an outcome, too."""
        store = self[handle]
        try:
            return self.driver.outcome(store, call)
        except _NO_OUTCOMES:
            raise
        except self._errors as error:
            self.driver.refusal = error
            return Refused(type(error))

    def has(self, handle: str, name: str) -> bool:
        """Whether the store of a handle has a method."""
        return self.driver.has(self[handle], name)

    def restart(self) -> None:
        """Close all handles; each is opened again when it is next used.

        A store without a method that closes it closes its files as garbage. That must not be at some later time: a
        connection to SQLite writes then, and deletes files by names that others have by then.
        """
        is_closed = True
        while self._stores:
            is_closed &= self._stores.popitem()[1].finish()
        for generation in range(3):  # what was just used is young, and to look at all that is old takes long
            if not is_closed and _descriptors() > self._before:
                gc.collect(generation)

    def __enter__(self) -> Handles:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # An error while closing would only hide the failure before it.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.restart()


def _descriptors() -> int:
    """Return how many descriptors this process has open, as far as the system tells."""
    try:
        return len(_listdir("/proc/self/fd"))
    except OSError:
        return 0


def close(store: Any) -> Any:
    """Close a handle: call its `aclose()` or `close()`, if it has one."""
    closes = close_method(store)
    return closes() if closes else None


def close_method(store: Any) -> Callable[[], Any] | None:
    """Return the method that closes a store, if it has one."""
    return getattr(store, "aclose", None) or getattr(store, "close", None)
