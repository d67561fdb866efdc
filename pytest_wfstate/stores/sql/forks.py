"""Forks: no SQLite connection crosses one, and no PostgreSQL connection is used by two processes.

SQLite keeps a list of the files that its process has locked. A forked child inherits the list but not the locks, which
belong to a process (fcntl(2)). A connection opened by the child then believes it holds them: when the parent closes its
own last connection it sees no other user, and removes the log that the child goes on writing to. Acknowledged changes
of the child are lost. So a fork waits for calls of other threads, calls that begin meanwhile wait for the fork, and the
parent's idle connections are closed first.

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
from typing import TYPE_CHECKING, Any

from pytest_wfstate.stores.sql import calls
from pytest_wfstate.stores.sql.calls import Call

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_wfstate.stores.sql.connections import Connections

guard: Any = threading.RLock()  # of everything below; held across a fork
_calls: dict[Call, None] = {}  # those in progress on SQLite
_waiting: dict[Call, None] = {}  # those that begin while a fork is about to happen
_forking: dict[int, Call] = {}  # the threads that are about to fork, each with something to wake it by
_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_used: weakref.WeakSet[Any] = weakref.WeakSet()  # connections to servers that stores have used
_inherited: list[object] = []  # from the parent: kept, because collecting them would close them


def make_safe(connections: Connections) -> None:
    """Let a forked child use the owner of these connections: it reconnects."""
    with guard:
        _all.add(connections)
        _engines.add(connections.engine)


def note(driver: Any) -> None:
    """Remember a connection, so that a forked child drops its socket even if it is in use during the fork."""
    _used.add(driver)


def enter(call: Call) -> None:
    """Begin a call on SQLite: another thread that forks waits until it has ended."""
    call.held.append(_LEAVE)
    while not _may_enter(call):
        call.wait()


def _may_enter(call: Call) -> bool:
    with guard:
        if _forking and _is_newcomer(call.thread):
            _waiting[call] = None
            call.sleeps()
            return False
        _waiting.pop(call, None)
        _calls[call] = None
        return True


def _is_newcomer(thread: int) -> bool:
    """Whether a thread neither forks nor is in a call: a fork would wait for that one."""
    return thread not in _forking and all(call.thread != thread for call in _calls)


class _Leave:
    """Ends a call on SQLite."""

    def release(self, call: Call) -> None:
        with guard:
            _waiting.pop(call, None)
            _calls.pop(call, None)
            for thread in _forking.values():
                thread.wake()


_LEAVE = _Leave()


def _before() -> None:
    forker = Call()
    with guard:
        _forking[forker.thread] = forker
    while not _may_fork(forker):
        forker.wait()
    for connections in _all:
        if _is_sqlite(connections.engine):
            connections.disconnect()
    for engine in filter(_is_sqlite, _engines):
        engine.dispose()


def _may_fork(forker: Call) -> bool:
    """Whether no other thread is in a call. The guard is held then."""
    guard.acquire()
    for call in [call for call in _calls if not call.lock.locked()]:
        del _calls[call]
    if all(call.thread == forker.thread for call in _calls):
        return True
    forker.sleeps()
    guard.release()
    return False


def _after_in_parent() -> None:
    with guard:
        _forking.pop(threading.get_ident(), None)
        for call in _waiting:
            call.wake()
    _let_go()


def _let_go() -> None:
    """Release the guard, however often this thread has it: an exception in `_before` is ignored by the interpreter."""
    while guard._is_owned():
        guard.release()


def _after_in_child() -> None:
    try:
        _detach([*_used, *(driver for engine in _engines for driver in _idle_in(engine))])
    finally:
        _used.clear()  # a grandchild must leave these descriptors alone: they may be reused by then
        calls.forked()
        own = threading.get_ident()
        for call in [call for call in _calls if call.thread != own]:
            del _calls[call]
        _waiting.clear()
        _forking.clear()
        _inherited.extend([connections.abandon() for connections in _all])
        for engine in _engines:
            _inherited.append(engine.pool)
            engine.dispose(close=False)
        _let_go()


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
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
