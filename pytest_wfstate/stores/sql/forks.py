"""Forks: no connection of SQLite crosses one, and none of PostgreSQL is used by two processes.

SQLite keeps a list of the files that its process has locked. A forked child inherits the list and not the locks, which
belong to a process (fcntl(2)). A connection that the child opens then takes them for held: the parent, when it closes
its own last connection, finds nobody else at work, and removes the log that the child goes on writing to. What the
child was acknowledged is lost. So a fork waits for calls of other threads, and the parent's idle connections are
closed before it.

A connection to PostgreSQL is a socket, which two processes cannot share. To close the connection in the child would say
goodbye to the server, and end the parent's session. To keep it would be no better: the session of a parent that is
killed would live on with its locks, as long as the child does. So the child has another socket in its place, whose
other end is closed already.

An engine of the user's has connections that outlive the handles on it, so it is made safe for as long as it lives.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_wfstate.stores.sql.connections import Connections

_gate = threading.Condition()  # held by who forks
_callers: dict[int, int] = {}  # threads that are in a call on SQLite, and how deep
_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_used: weakref.WeakSet[Any] = weakref.WeakSet()  # connections to servers that were used by stores
_inherited: list[object] = []  # of the parent: kept, since what is garbage is closed


def make_safe(connections: Connections) -> None:
    """Let a forked child use what has these connections: it connects anew."""
    with _gate:
        _all.add(connections)
        _engines.add(connections.engine)


def note(driver: Any) -> None:
    """Have a forked child let go of the socket of a connection, which may be in use when it is forked."""
    _used.add(driver)


class ForkBarrier:
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
    try:
        _let_go([*_used, *(driver for engine in _engines for driver in _idle_in(engine))])
    finally:
        _used.clear()  # so that a child of the child leaves their descriptors alone, whatever they are by then
        _inherited.extend([connections.abandon() for connections in _all])
        for engine in _engines:
            _inherited.append(engine.pool)
            engine.dispose(close=False)
        _gate.release()


def _idle_in(engine: Engine) -> list[Any]:
    """Give the connections to a server that an engine keeps, of which stores may have used none.

    No public name gives them without a lock, which a thread that is not in the child may have held.
    """
    kept = getattr(getattr(engine.pool, "_pool", None), "queue", ())
    return [] if _is_sqlite(engine) else [one.dbapi_connection for one in kept if one.dbapi_connection is not None]


def _let_go(drivers: Sequence[Any]) -> None:
    """Put a socket that leads nowhere in the place of those of connections."""
    if not drivers:
        return
    nowhere, other_end = socket.socketpair()
    other_end.close()
    with nowhere:
        for driver in drivers:
            if not driver.closed:
                os.dup2(nowhere.fileno(), driver.fileno(), inheritable=False)


def _is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_gate.release, after_in_child=_after_in_child)
