"""Connections: those of a handle's own engine it keeps between calls, those of the user's engine it gives back.

To borrow one of a pool of SQLAlchemy, and to give it back, takes as long as SQLite takes for a small change.
"""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql import forks
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.engine import shown
from pytest_wfstate.stores.sql.fair_semaphore import FairSemaphore
from pytest_wfstate.stores.sql.statements import Transaction

_MOST_KEPT = 5
_MOST_USED = 32  # at once: asyncio has no more threads that could use one
_LOST = ("closed the connection unexpectedly", "has been closed unexpectedly", "reset by peer", "Broken pipe")


class Connections:
    """The connections of one handle."""

    def __init__(self, engine: Engine, dialect: Dialect, *, keeps: bool) -> None:
        self.engine = engine
        self.dialect = dialect
        self.keeps = keeps
        self.idle: list[Transaction] = []
        """Those that are kept. Another list takes its place when they are to be closed."""
        self.room = FairSemaphore(_MOST_USED) if keeps else None
        """Where a call has a place while it has a connection. An engine of the user's has bounds of its own."""
        forks.make_safe(self)

    def connect(self) -> Transaction:
        """Connect, or borrow a connection of the user's engine.

        Raises:
            LostConnection: there is none to be had.

        """
        try:
            return self._connect()
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise LostConnection(
                f"there is no connection to {shown(self.engine)}: {said(error)}. Nothing was changed. See that the "
                "server runs and takes one more, or that the folder of the file exists and can be written to."
            ) from error

    def _connect(self) -> Transaction:
        try:
            return Transaction(self.engine, self.engine.raw_connection())
        except self.engine.dialect.loaded_dbapi.Error as error:
            if not _is_lost(error):
                raise
        return Transaction(self.engine, self.engine.raw_connection())

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would connect anew."""
        if self.keeps:
            self.disconnect()

    def disconnect(self) -> None:
        """Close all that are idle. Those in use are closed when they come back."""
        idle, self.idle = self.idle, []
        close_all(idle)
        self.engine.dispose()

    def abandon(self) -> object:
        """Forget those that are idle and close none of them. They last as long as what this gives."""
        idle, self.idle = self.idle, []
        self.room = FairSemaphore(_MOST_USED) if self.keeps else None  # the parent's calls give nothing back here
        return idle


class BorrowedConnection:
    """A connection, for one call. It is closed if it comes back when others were, or spoilt.

    A call has one at a time, so that none waits for room that only its own end would give.
    """

    __slots__ = ("_connections", "_idle", "_pool", "_room", "_transaction")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._room = connections.room
        if self._room is not None:
            self._room.take()
        self._idle = connections.idle
        self._pool = connections.engine.pool
        try:
            self._transaction = self._idle.pop()
        except IndexError:
            self._transaction = self._connect()

    def __enter__(self) -> Transaction:
        try:
            self._connections.dialect.take(self._transaction)
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
            self._make_room()
            raise

    def _end(self, error: BaseException | None) -> None:
        transaction, connections = self._transaction, self._connections
        try:
            if (error is not None and _spoils(error)) or not self._is_given_back():
                transaction.pooled.invalidate()
            elif connections.keeps and len(self._idle) < _MOST_KEPT:
                self._idle.append(transaction)
                if connections.idle is not self._idle:  # they were closed meanwhile
                    close_all(self._idle)
            else:
                transaction.pooled.close()
                if connections.engine.pool is not self._pool:
                    self._pool.dispose()
        finally:
            self._make_room()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.give()

    def _is_given_back(self) -> bool:
        try:
            self._connections.dialect.give_back(self._transaction)
        except self._transaction.error:
            return False
        return True


def close_all(idle: list[Transaction]) -> None:
    """Close connections that nobody uses, each once, whoever else does the same."""
    while idle:
        try:
            idle.pop().pooled.invalidate()
        except IndexError:
            return


def said(error: BaseException | None) -> str:
    """Give what a driver says, in a line."""
    return " ".join(str(error).split()).rstrip(".")


def _is_lost(error: BaseException) -> bool:
    """Tell whether a server was there, and gone before it had let anybody in: libpq tells it in words alone."""
    return any(words in str(error) for words in _LOST)


def _spoils(error: BaseException) -> bool:
    """Tell whether a connection is of no use after an error.

    After an fsync that failed SQLite remembers what the disk does not have. After Ctrl-C nobody knows what a driver
    was at.
    """
    return isinstance(error, DBAPIError | LostConnection) or not isinstance(error, Exception)
