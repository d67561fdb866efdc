"""Forks: no connection of SQLite crosses one, and none of PostgreSQL is used by two processes.

SQLite keeps a list of the files that its process has locked. A forked child inherits the list and not the locks, which
belong to a process (fcntl(2)). A connection that the child opens then takes them for held: the parent, when it closes
its own last connection, finds nobody else at work, and removes the log that the child goes on writing to. What the
child was acknowledged is lost. So a fork waits for calls of other threads, and the parent's idle connections are
closed before it.

A connection to PostgreSQL is a socket, which two processes cannot share. The child leaves it alone, for ever: to close
it would end the parent's session.

An engine of the user's has connections that outlive the handles on it, so it is made safe for as long as it lives.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_wfstate.stores.sql._connections import Connections

_gate = threading.Condition()  # held by who forks
_callers: dict[int, int] = {}  # threads that are in a call on SQLite, and how deep
_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_inherited: list[object] = []  # of the parent: kept, since what is garbage is closed


def make_safe(connections: Connections) -> None:
    """Let a forked child use what has these connections: it connects anew."""
    with _gate:
        _all.add(connections)
        _engines.add(connections.engine)


class Call:
    """What calls on SQLite are made in: other threads that would fork wait until they are over.

    With `lock` they are made one at a time.
    """

    def __init__(self, lock: AbstractContextManager[object] = nullcontext()) -> None:  # noqa: B008 - it has no state
        self._lock = lock

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with _gate:
            _callers[thread] = _callers.get(thread, 0) + 1
        try:
            self._lock.__enter__()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)
        self._leave()

    def _leave(self) -> None:
        thread = threading.get_ident()
        with _gate:
            depth = _callers.pop(thread)
            if depth > 1:
                _callers[thread] = depth - 1
            else:
                _gate.notify_all()


def _before() -> None:
    _gate.acquire()
    own = threading.get_ident()
    _gate.wait_for(lambda: all(thread == own for thread in _callers))
    for connections in _all:
        if _is_sqlite(connections.engine):
            connections.disconnect()
    for engine in filter(_is_sqlite, _engines):
        engine.dispose()


def _after_in_child() -> None:
    for connections in _all:
        _inherited.append(connections.abandon())
    for engine in _engines:
        _inherited.append(engine.pool)
        engine.dispose(close=False)
    _gate.release()


def _is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_gate.release, after_in_child=_after_in_child)
