"""Locks made before the race, and kept by a module or class under test or by a client's closure.

The scheduler does not know them. So each is replaced by a scheduled one while a schedule runs, and put back afterwards.
Their numbers are negative: there may be many, and the locks that a store makes are counted from 1.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pytest_wfstate.faults.race.locks import RealLock, RealRLock, ScheduledLock, ScheduledRLock, make_lock
from pytest_wfstate.faults.race.stop_points import UnderTest
from pytest_wfstate.faults.race.thread_scheduler import ThreadScheduler

LockPlace = tuple[str, Any, Callable[[Any], None]]
"""The name of a place, the lock kept there, and how to put another one there."""


class ModuleLocks:
    """Replaces the locks that modules and classes under test, and the closures of clients, keep."""

    def __init__(self, is_under_test: UnderTest, clients: Sequence[Callable[..., Any]]) -> None:
        self._is_under_test = is_under_test
        self._clients = clients
        self._searched: tuple[int, tuple[str, ...]] = (0, ())
        self._places: list[LockPlace] = []

    def replace(self, scheduler: ThreadScheduler) -> None:
        """Put a scheduled lock in the place of each."""
        searched = (len(sys.modules), self._is_under_test.packages)
        if self._searched != searched:
            self._searched = searched
            self._places = [*self._in_modules(), *self._in_closures()]
        scheduled: dict[int, Any] = {}
        for name, lock, put in self._places:
            if id(lock) not in scheduled:
                scheduled[id(lock)] = _scheduled_like(lock, scheduler, name, -1 - len(scheduled))
            put(scheduled[id(lock)])

    def restore(self) -> None:
        """Put the real locks back."""
        for _, lock, put in self._places:
            put(lock)

    def _in_modules(self) -> Iterator[LockPlace]:
        for name, module in list(sys.modules.items()):
            if self._is_under_test(getattr(module, "__file__", None) or ""):
                yield from _in_module(name, module)

    def _in_closures(self) -> Iterator[LockPlace]:
        for client in self._clients:
            code, cells = getattr(client, "__code__", None), getattr(client, "__closure__", None)
            for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
                value = _content(cell)
                if _is_lock(value):
                    yield name, value, functools.partial(setattr, cell, "cell_contents")


def _in_module(name: str, module: types.ModuleType) -> Iterator[LockPlace]:
    for key, value in list(vars(module).items()):
        if _is_lock(value):
            yield f"{name}.{key}", value, functools.partial(setattr, module, key)
        elif isinstance(value, type) and value.__module__ == name:
            for attribute, held in list(vars(value).items()):
                if _is_lock(held):
                    yield f"{name}.{key}.{attribute}", held, functools.partial(setattr, value, attribute)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not assigned yet
        return None


def _is_lock(value: Any) -> bool:
    return type(value) in (RealLock, RealRLock, threading.Condition)


def _scheduled_like(real: Any, scheduler: ThreadScheduler, name: str, number: int) -> Any:
    lock = make_lock(ScheduledLock, scheduler, name, number)
    if type(real) is RealLock:
        return lock
    reentrant = ScheduledRLock.on(lock)
    return threading.Condition(reentrant) if isinstance(real, threading.Condition) else reentrant
