"""Forks: no SQLite connection crosses one, and no PostgreSQL connection is used by two processes.

SQLite keeps a list of the files that its process has locked. A forked child inherits the list but not the locks, which
belong to a process (fcntl(2)). A connection opened by the child then believes it holds them: when the parent closes its
own last connection it sees no other user, and removes the log that the child goes on writing to. Acknowledged changes
of the child are lost. So a fork waits for calls of other threads, and the parent's idle connections are closed first.

A connection to PostgreSQL is a socket, which two processes cannot share. Closing the connection in the child would send
a goodbye to the server and end the parent's session. Keeping it is no better: if the parent is killed, its session
keeps its locks as long as the child lives. So the child gets another socket in its place, whose other end is closed.

The user's engine has connections that outlive the handles on it, so it is protected as long as it exists.
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

_gate = threading.Condition()  # held across a fork
_callers: dict[int, int] = {}  # threads that are in a call on SQLite, and how deep
_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_used: weakref.WeakSet[Any] = weakref.WeakSet()  # connections to servers that stores have used
_inherited: list[object] = []  # from the parent: kept, because collecting them would close them


def make_safe(connections: Connections) -> None:
    """Let a forked child use the owner of these connections: it reconnects."""
    with _gate:
        _all.add(connections)
        _engines.add(connections.engine)


def note(driver: Any) -> None:
    """Remember a connection, so that a forked child drops its socket even if it is in use during the fork."""
    _used.add(driver)


class ForkBarrier:
    """The context of calls on SQLite: another thread that forks waits until they are done.

    With `lock` they run one at a time.
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
        _detach([*_used, *(driver for engine in _engines for driver in _idle_in(engine))])
    finally:
        _used.clear()  # a grandchild must leave these descriptors alone: they may be reused by then
        _inherited.extend([connections.abandon() for connections in _all])
        for engine in _engines:
            _inherited.append(engine.pool)
            engine.dispose(close=False)
        _gate.release()


def _idle_in(engine: Engine) -> list[Any]:
    """Return the idle connections of an engine to a server, even those that no store has used.

    Public names need a lock for this, which a thread that does not exist in the child may have held.
    """
    pooled = getattr(getattr(engine.pool, "_pool", None), "queue", ())
    drivers = [] if _is_sqlite(engine) else [record.dbapi_connection for record in pooled]
    return [driver for driver in drivers if driver is not None]


def _detach(drivers: Sequence[Any]) -> None:
    """Replace the sockets of connections with one that leads nowhere."""
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
