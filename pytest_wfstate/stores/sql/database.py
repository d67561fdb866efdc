"""A database: transactions that are one step, tried again where the connection was lost and that is safe.

A transaction whose connection is lost before COMMIT was sent has changed nothing, so it is made once more. If the
connection is lost in COMMIT itself nobody knows. To make the call again could undo what another worker did meanwhile,
so it is reported. To make tables again undoes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql.connections import BorrowedConnection, Connections, said
from pytest_wfstate.stores.sql.dialects import dialect_of
from pytest_wfstate.stores.sql.engine import open_engine, shown
from pytest_wfstate.stores.sql.schema import Schema
from pytest_wfstate.stores.sql.statements import Statement, StatementResult, Transaction, Values

T = TypeVar("T")
Work = Callable[[Transaction], T]

_SCHEMA = "wfstate schema"  # the lock of who makes or drops tables
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
        self._is_made = False  # as far as anybody knows

    def __str__(self) -> str:
        return shown(self.engine)

    def needs(self, schema: Schema) -> None:
        """Have these tables made before the next call."""
        self._schema, self._is_made = schema, False

    def drop(self, schema: Schema) -> None:
        """Drop these tables, with all that is in them."""
        self.dialect.find()
        self._retry_once(lambda: self._change_once(lambda transaction: schema.drop(transaction, str(self)), _SCHEMA))
        self.needs(schema)

    def ask(self, statement: Statement, values: Values) -> StatementResult:
        """Make one statement that only looks: it sees one moment of the database, and needs no transaction."""
        return self._on_tables(lambda: self._look(lambda transaction: transaction.execute(statement, values)))

    def read(self, work: Work[T]) -> T:
        """Do work that only looks, and sees one moment of the database."""
        return self._on_tables(lambda: self._look(lambda transaction: self._in_one_moment(transaction, work)))

    def change(self, statement: Statement, values: Values) -> None:
        """Make one statement that changes something, in one step.

        Raises:
            LostConnection: as `write` does.

        """
        if not self.dialect.autocommit_is_atomic:
            self.write(lambda transaction: transaction.execute(statement, values))
            return
        self._on_tables(lambda: self._change_alone(statement, values))

    def write(self, work: Work[T], lock: str | None = None) -> T:
        """Do work in one step: all of it, or nothing.

        With `lock`, what others do under a lock of the same name comes before or after it.

        Raises:
            LostConnection: the database cannot be reached, or was lost when nobody can tell what came of the work.

        """
        return self._on_tables(lambda: self._change_once(work, lock))

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would connect anew."""
        self._connections.close()

    def _on_tables(self, attempt: Callable[[], T]) -> T:
        """Make an attempt when the tables are made; and if another handle has dropped them since, when they are again.

        A statement that found no table has changed nothing, nor has the transaction that it was in.
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
        self.dialect.find()
        if not self._retry_once(lambda: self._look(lambda transaction: schema.is_made(transaction, str(self)))):
            # Also if the connection is lost in COMMIT: what is made already is not made again.
            self._retry_once(lambda: self._change(lambda transaction: schema.make(transaction, str(self)), _SCHEMA))
        self._is_made = True

    def _look(self, work: Work[T]) -> T:
        with self.dialect.call(writes=False), BorrowedConnection(self._connections) as transaction:
            return work(transaction)

    def _in_one_moment(self, transaction: Transaction, work: Work[T]) -> T:
        self.dialect.begin(transaction, writes=False)
        return work(transaction)

    def _change_alone(self, statement: Statement, values: Values) -> None:
        with self.dialect.call(writes=True), BorrowedConnection(self._connections) as transaction:
            transaction.execute(statement, values)

    def _change_once(self, work: Work[T], lock: str | None) -> T:
        """Do work in one step, and tell if nobody knows what came of it."""
        try:
            return self._change(work, lock)
        except DBAPIError as error:
            if not (error.connection_invalidated and error.statement == _COMMIT):
                raise
            raise LostConnection(
                f"the connection to {self} was lost while a change was committed: {said(error.orig)}. Nobody can "
                "tell whether it was made. Look whether it is there before you make it again."
            ) from error

    def _change(self, work: Work[T], lock: str | None) -> T:
        with self.dialect.call(writes=True), BorrowedConnection(self._connections) as transaction:
            self.dialect.begin(transaction, writes=True, lock=lock)
            result = work(transaction)
            transaction.say(_COMMIT)
            return result

    def _retry_once(self, attempt: Callable[[], T]) -> T:
        """Make an attempt, and another one if the first has certainly changed nothing and may fare better."""
        try:
            return attempt()
        except DBAPIError as error:
            if not _changed_nothing(error):
                raise
            if error.connection_invalidated:
                self._connections.disconnect()  # a server that has ended one has ended them all
        try:
            return attempt()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise LostConnection(
                f"the connection to {self} was lost twice: {said(error.orig)}. Nothing was changed. "
                "See what ends connections, and make the call again."
            ) from error


def _changed_nothing(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _ROLLED_BACK
