"""Old locks: those that were made before a race, and are kept by a module or class under test, or by a client.

They cannot take turns. So for each schedule a new one is put in the place of each, which can; and then it is put back.
The numbers of these are below zero: there may be many, and those that a store makes are counted from 1.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pytest_wfstate.faults.race.blocking import Lock, RealLock, RealRLock, RLock, made
from pytest_wfstate.faults.race.stepping import UnderTest
from pytest_wfstate.faults.race.thread_scheduler import ThreadScheduler

Place = tuple[str, Any, Callable[[Any], None]]
"""What a place is called, what is there, and how to put something there."""


class OldLocks:
    """The locks that the code under test has had since it was imported, and those of the closures of clients."""

    def __init__(self, is_under_test: UnderTest, clients: Sequence[Callable[..., Any]]) -> None:
        self._is_under_test = is_under_test
        self._clients = clients
        self._looked_at: tuple[int, tuple[str, ...]] = (0, ())
        self._places: list[Place] = []

    def replace(self, scheduler: ThreadScheduler) -> None:
        """Put a new lock in the place of each."""
        looked_at = (len(sys.modules), self._is_under_test.packages)
        if self._looked_at != looked_at:
            self._looked_at = looked_at
            self._places = [*self._of_modules(), *self._of_clients()]
        new: dict[int, Any] = {}
        for name, old, put in self._places:
            if id(old) not in new:
                new[id(old)] = _new(old, scheduler, name, -1 - len(new))
            put(new[id(old)])

    def restore(self) -> None:
        """Put back what was there."""
        for _, old, put in self._places:
            put(old)

    def _of_modules(self) -> Iterator[Place]:
        for name, module in list(sys.modules.items()):
            if self._is_under_test(getattr(module, "__file__", None) or ""):
                yield from _of_module(name, module)

    def _of_clients(self) -> Iterator[Place]:
        for client in self._clients:
            code = getattr(client, "__code__", None)
            for name, cell in zip(
                code.co_freevars if code else (), getattr(client, "__closure__", None) or (), strict=True
            ):
                if _is_old(cell.cell_contents):
                    yield name, cell.cell_contents, functools.partial(setattr, cell, "cell_contents")


def _of_module(name: str, module: types.ModuleType) -> Iterator[Place]:
    for key, value in list(vars(module).items()):
        if _is_old(value):
            yield f"{name}.{key}", value, functools.partial(setattr, module, key)
        elif isinstance(value, type) and value.__module__ == name:
            for attribute, held in list(vars(value).items()):
                if _is_old(held):
                    yield f"{name}.{key}.{attribute}", held, functools.partial(setattr, value, attribute)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _is_old(value: Any) -> bool:
    return type(value) in (RealLock, RealRLock, threading.Condition)


def _new(old: Any, scheduler: ThreadScheduler, name: str, number: int) -> Any:
    """Make a lock of the same kind that takes turns."""
    lock = made(Lock, scheduler, name, number)
    if type(old) is RealLock:
        return lock
    reentrant = RLock.on(lock)
    return threading.Condition(reentrant) if isinstance(old, threading.Condition) else reentrant
