"""The connections of a handle. It keeps those of its own engine between calls, and returns those of the user's engine.

Borrowing a connection from SQLAlchemy's pool and returning it takes as long as a small change in SQLite.
"""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql import forks
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.fair_semaphore import FairSemaphore
from pytest_wfstate.stores.sql.sqlalchemy_engine import shown
from pytest_wfstate.stores.sql.statements import Transaction

_MOST_IDLE = 5
_MOST_USED = 32  # at once: asyncio has no more threads than that
_LOST = ("closed the connection unexpectedly", "has been closed unexpectedly", "reset by peer", "Broken pipe")


class Connections:
    """The connections of one handle."""

    def __init__(self, engine: Engine, dialect: Dialect, *, keeps: bool) -> None:
        self.engine = engine
        self.dialect = dialect
        self.keeps = keeps
        self.idle: list[Transaction] = []
        """Open connections between calls. Another list takes its place when they are closed."""
        self.slots = FairSemaphore(_MOST_USED) if keeps else None
        """Bounds the calls that have a connection at once. The user's engine has a bound of its own."""
        forks.make_safe(self)

    def connect(self) -> Transaction:
        """Connect, or borrow a connection from the user's engine.

        Raises:
            LostConnection: the database cannot be reached.

        """
        try:
            return self._connect()
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise LostConnection(
                f"cannot connect to {shown(self.engine)}: {said(error)}. Nothing was changed. Check that the server is "
                "running and accepts another connection, or that the folder of the file exists and is writable."
            ) from error

    def _connect(self) -> Transaction:
        try:
            return Transaction(self.engine, self.engine.raw_connection())
        except self.engine.dialect.loaded_dbapi.Error as error:
            if not _is_lost(error):
                raise
        return Transaction(self.engine, self.engine.raw_connection())

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would reconnect."""
        if self.keeps:
            self.disconnect()

    def disconnect(self) -> None:
        """Close idle connections now, and those in use when they are returned."""
        idle, self.idle = self.idle, []
        close_all(idle)
        self.engine.dispose()

    def abandon(self) -> object:
        """Forget the idle connections without closing any. They stay open as long as the returned object is kept."""
        idle, self.idle = self.idle, []
        self.slots = FairSemaphore(_MOST_USED) if self.keeps else None  # the parent's calls release nothing here
        return idle


class BorrowedConnection:
    """A connection, for one call. It is closed afterwards if it broke, or if the handle was closed meanwhile.

    A call has one at a time, so that none waits for a slot that only its own end would release.
    """

    __slots__ = ("_connections", "_idle", "_pool", "_slots", "_transaction")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._slots = connections.slots
        if self._slots is not None:
            self._slots.acquire()
        self._idle = connections.idle
        self._pool = connections.engine.pool
        try:
            self._transaction = self._idle.pop()
        except IndexError:
            self._transaction = self._connect()

    def __enter__(self) -> Transaction:
        try:
            self._connections.dialect.configure(self._transaction)
        except BaseException as error:
            self._end(error)
            raise
        return self._transaction

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._end(error)

    def _connect(self) -> Transaction:
        try:
            return self._connections.connect()
        except BaseException:
            self._release()
            raise

    def _end(self, error: BaseException | None) -> None:
        transaction, connections = self._transaction, self._connections
        try:
            if (error is not None and _breaks(error)) or not self._is_restored():
                transaction.pooled.invalidate()
            elif connections.keeps and len(self._idle) < _MOST_IDLE:
                self._idle.append(transaction)
                if connections.idle is not self._idle:  # they were closed meanwhile
                    close_all(self._idle)
            else:
                transaction.pooled.close()
                if connections.engine.pool is not self._pool:
                    self._pool.dispose()
        finally:
            self._release()

    def _release(self) -> None:
        if self._slots is not None:
            self._slots.release()

    def _is_restored(self) -> bool:
        try:
            self._connections.dialect.restore(self._transaction)
        except self._transaction.error:
            return False
        return True


def close_all(idle: list[Transaction]) -> None:
    """Close idle connections, each exactly once even if other threads do the same."""
    while idle:
        try:
            idle.pop().pooled.invalidate()
        except IndexError:
            return


def said(error: BaseException | None) -> str:
    """Return a driver's message on one line."""
    return " ".join(str(error).split()).rstrip(".")


def _is_lost(error: BaseException) -> bool:
    """Whether a server was reached and hung up before the login: libpq says so only in its message."""
    return any(phrase in str(error) for phrase in _LOST)


def _breaks(error: BaseException) -> bool:
    """Whether a connection is unusable after an error.

    After a failed fsync SQLite caches what the disk does not have. After Ctrl-C the driver's state is unknown.
    """
    return isinstance(error, DBAPIError | LostConnection) or not isinstance(error, Exception)
