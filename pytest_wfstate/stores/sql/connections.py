"""The connections of a handle. It keeps those of its own engine between calls, and returns those of the user's engine.

Borrowing a connection from SQLAlchemy's pool and returning it takes as long as a small change in SQLite.
"""

from __future__ import annotations

from sqlalchemy import Engine

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql import forks
from pytest_wfstate.stores.sql.calls import Call, FairQueue
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.sqlalchemy_engine import said, shown, unusable
from pytest_wfstate.stores.sql.statements import Transaction

_MOST_IDLE = 16  # so many workers that share a handle never connect again
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
        self.slots = FairQueue(_MOST_USED) if keeps else None
        """Bounds the calls that have a connection at once. The user's engine has a bound of its own."""
        forks.make_safe(self)

    def borrow(self, call: Call) -> BorrowedConnection:
        """Let a call take a connection, and close it if the call does not return it."""
        if self.slots is not None:
            self.slots.enter(call)
        borrowed = BorrowedConnection(self)
        call.held.append(borrowed)
        return borrowed

    def connect(self) -> Transaction:
        """Connect, or borrow a connection from the user's engine.

        Raises:
            LostConnection: the database cannot be reached.

        """
        self.dialect.before_connecting()
        try:
            return self._connect()
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise LostConnection(
                f"cannot connect to {shown(self.engine)}: {said(error)}. Nothing was changed. Check that the server is "
                "running and accepts another connection, or that the folder of the file exists and is writable."
            ) from error
        except TypeError:
            if self.engine.dialect.name != "postgresql":
                raise
            # SQLAlchemy asks for the version, and the driver returns bytes: it cannot know what text they are.
            why = "its driver cannot decode what the server says. Its encoding may be SQL_ASCII, and it has to be UTF8"
            raise unusable(shown(self.engine), why) from None

    def _connect(self) -> Transaction:
        try:
            return self.dialect.transaction(self.engine, self.engine.raw_connection())
        except self.engine.dialect.loaded_dbapi.Error as error:
            if not _is_lost(error):
                raise
        return self.dialect.transaction(self.engine, self.engine.raw_connection())

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
        return idle


class BorrowedConnection:
    """A connection, for one call. It is closed afterwards unless the call succeeds.

    After an error its state is unknown: a driver may have been interrupted anywhere, and after a failed fsync SQLite
    caches what the disk does not have.
    """

    __slots__ = ("_connections", "_idle", "_pool", "_transaction")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._idle = connections.idle
        self._pool = connections.engine.pool
        self._transaction: Transaction | None = None

    def take(self) -> Transaction:
        """Take an idle connection, or connect."""
        try:
            self._transaction = self._idle.pop()
        except IndexError:
            self._transaction = self._connections.connect()
            while not self._connections.dialect.accepts(self._transaction.pooled):
                self._transaction.discard()
                self._transaction = self._connections.connect()
        return self._transaction

    def give_back(self, transaction: Transaction) -> None:
        """Return the connection, which has no transaction open. It is closed if the handle was closed meanwhile."""
        connections = self._connections
        connections.dialect.restore(transaction)
        if connections.keeps and len(self._idle) < _MOST_IDLE:
            self._transaction = None  # first: an idle connection must not be closed
            self._idle.append(transaction)
            if connections.idle is not self._idle:  # they were closed meanwhile
                close_all(self._idle)
        else:
            transaction.pooled.close()
            self._transaction = None
            if connections.engine.pool is not self._pool:
                self._pool.dispose()

    def release(self, call: Call) -> None:  # noqa: ARG002 - it has but one owner
        """Close the connection, unless it was returned."""
        transaction = self._transaction
        if transaction is not None:
            transaction.discard()
            self._transaction = None


def close_all(idle: list[Transaction]) -> None:
    """Close idle connections, each exactly once even if other threads do the same."""
    while idle:
        try:
            idle.pop().pooled.invalidate()
        except IndexError:
            return


def _is_lost(error: BaseException) -> bool:
    """Whether a server was reached and hung up before the login: libpq says so only in its message."""
    return any(phrase in str(error) for phrase in _LOST)
