"""A database: atomic transactions. Lost connections are retried once when that is safe, and reported otherwise.

A transaction whose connection is lost before COMMIT was sent has changed nothing, so it is retried. If the connection
is lost during COMMIT, the outcome is unknown. A retry could undo what another worker did meanwhile, so the loss is
reported. Creating tables twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql.connections import BorrowedConnection, Connections, said
from pytest_wfstate.stores.sql.dialects import dialect_of
from pytest_wfstate.stores.sql.schema import Schema
from pytest_wfstate.stores.sql.sqlalchemy_engine import open_engine, shown
from pytest_wfstate.stores.sql.statements import Statement, StatementResult, Transaction, Values

T = TypeVar("T")
Work = Callable[[Transaction], T]

_SCHEMA = "wfstate schema"  # the lock held while tables are created or dropped
_COMMIT = "COMMIT"
_ROLLED_BACK = {"40001", "40P01"}  # serialization_failure, deadlock_detected


class Database:
    """The tables of one store, in a database."""

    def __init__(self, where: str | URL | Engine) -> None:
        engine, is_own = open_engine(where)
        self.engine = engine
        self.dialect = dialect_of(engine)
        self._connections = Connections(engine, self.dialect, keeps=is_own)
        self._schema: Schema | None = None
        self._is_made = False  # as far as this handle knows

    def __str__(self) -> str:
        return shown(self.engine)

    def needs(self, schema: Schema) -> None:
        """Create these tables before the next call."""
        self._schema, self._is_made = schema, False

    def drop(self, schema: Schema) -> None:
        """Drop these tables with everything in them."""
        self.dialect.prepare()
        self._retry_once(lambda: self._change_once(lambda transaction: schema.drop(transaction, str(self)), _SCHEMA))
        self.needs(schema)

    def ask(self, statement: Statement, values: Values) -> StatementResult:
        """Execute one statement that only reads: it sees one moment of the database, and needs no transaction."""
        return self._on_tables(lambda: self._read_once(lambda transaction: transaction.execute(statement, values)))

    def read(self, work: Work[T]) -> T:
        """Do work that only reads, and sees one moment of the database."""
        return self._on_tables(lambda: self._read_once(lambda transaction: self._in_one_moment(transaction, work)))

    def change(self, statement: Statement, values: Values) -> None:
        """Execute one statement that changes something, atomically.

        Raises:
            LostConnection: as `write` does.

        """
        if not self.dialect.autocommit_is_atomic:
            self.write(lambda transaction: transaction.execute(statement, values))
            return
        self._on_tables(lambda: self._change_alone(statement, values))

    def write(self, work: Work[T], lock: str | None = None) -> T:
        """Do work atomically: all of it, or nothing.

        With `lock`, work under a lock of the same name runs before or after it, never meanwhile.

        Raises:
            LostConnection: the database cannot be reached, or the connection was lost and the outcome is unknown.

        """
        return self._on_tables(lambda: self._change_once(work, lock))

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would reconnect."""
        self._connections.close()

    def _on_tables(self, attempt: Callable[[], T]) -> T:
        """Create the tables if necessary and make an attempt; do both again if another handle drops them meanwhile.

        A statement that found no table has changed nothing, nor has its transaction.
        """
        self._make_tables()
        try:
            return self._retry_once(attempt)
        except DBAPIError as error:
            if not self.dialect.lacks_table(error):
                raise
        self._is_made = False
        self._make_tables()
        return self._retry_once(attempt)

    def _make_tables(self) -> None:
        schema = self._schema
        if schema is None or self._is_made:
            return
        self.dialect.prepare()
        if not self._retry_once(lambda: self._read_once(lambda transaction: schema.is_made(transaction, str(self)))):
            # Even if the connection is lost during COMMIT: tables that exist are not created again.
            self._retry_once(lambda: self._change(lambda transaction: schema.make(transaction, str(self)), _SCHEMA))
        self._is_made = True

    def _read_once(self, work: Work[T]) -> T:
        with self.dialect.call(writes=False), BorrowedConnection(self._connections) as transaction:
            return work(transaction)

    def _in_one_moment(self, transaction: Transaction, work: Work[T]) -> T:
        self.dialect.begin(transaction, writes=False)
        return work(transaction)

    def _change_alone(self, statement: Statement, values: Values) -> None:
        with self.dialect.call(writes=True), BorrowedConnection(self._connections) as transaction:
            transaction.execute(statement, values)

    def _change_once(self, work: Work[T], lock: str | None) -> T:
        """Do work atomically, and report a connection that is lost during COMMIT."""
        try:
            return self._change(work, lock)
        except DBAPIError as error:
            if not (error.connection_invalidated and error.statement == _COMMIT):
                raise
            raise LostConnection(
                f"the connection to {self} was lost during COMMIT: {said(error.orig)}. The change may or may not have "
                "been made. Check whether it is there before you retry."
            ) from error

    def _change(self, work: Work[T], lock: str | None) -> T:
        with self.dialect.call(writes=True), BorrowedConnection(self._connections) as transaction:
            self.dialect.begin(transaction, writes=True, lock=lock)
            result = work(transaction)
            transaction.execute_text(_COMMIT)
            return result

    def _retry_once(self, attempt: Callable[[], T]) -> T:
        """Make an attempt, and retry once if it has certainly changed nothing and a retry can help."""
        try:
            return attempt()
        except DBAPIError as error:
            if not _changed_nothing(error):
                raise
            if error.connection_invalidated:
                self._connections.disconnect()  # a server that closed one connection has closed them all
        try:
            return attempt()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise LostConnection(
                f"the connection to {self} was lost twice: {said(error.orig)}. Nothing was changed. "
                "Find out what closes connections, then make the call again."
            ) from error


def _changed_nothing(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _ROLLED_BACK
