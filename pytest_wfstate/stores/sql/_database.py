"""A database: transactions that are one step, tried again where the connection was lost and that is safe.

A transaction whose connection is lost before COMMIT was sent has changed nothing, so it is made once more. If the
connection is lost in COMMIT itself nobody knows. To make the call again could undo what another worker did meanwhile,
so it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql._dialects import dialect_of
from pytest_wfstate.stores.sql._engine import open_engine, shown
from pytest_wfstate.stores.sql._schema import Schema
from pytest_wfstate.stores.sql._statements import Made, Statement, Transaction, Values

T = TypeVar("T")
Work = Callable[[Transaction], T]

_SCHEMA = "wfstate schema"  # the lock of who makes or drops tables
_ROLLED_BACK = {"40001", "40P01"}  # serialization_failure, deadlock_detected


class Database:
    """The tables of one store, in a database."""

    def __init__(self, where: str | URL | Engine) -> None:
        self.engine, self._is_own = open_engine(where)
        self.dialect = dialect_of(self.engine)
        self._unmade: Schema | None = None  # as long as nobody knows whether it is made

    def __str__(self) -> str:
        return shown(self.engine)

    def needs(self, schema: Schema) -> None:
        """Have these tables made before the next call."""
        self._unmade = schema

    def drop(self, schema: Schema) -> None:
        """Drop these tables, with all that is in them."""
        self.dialect.find()
        self._twice(lambda: self._change(schema.drop, _SCHEMA))
        self.needs(schema)

    def ask(self, statement: Statement, values: Values) -> Made:
        """Make one statement that only looks: it sees one moment of the database, and needs no transaction."""
        self._get_ready()
        return self._twice(lambda: self._look(lambda transaction: transaction.execute(statement, values)))

    def read(self, work: Work[T]) -> T:
        """Do work that only looks, and sees one moment of the database."""
        self._get_ready()
        return self._twice(lambda: self._look(lambda transaction: self._in_one_moment(transaction, work)))

    def write(self, work: Work[T], lock: str | None = None) -> T:
        """Do work in one step: all of it, or nothing.

        With `lock`, what others do under a lock of the same name comes before or after it.

        Raises:
            LostConnection: the database cannot be reached, or was lost when nobody can tell what came of the work.

        """
        self._get_ready()
        return self._twice(lambda: self._change(work, lock))

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would connect anew."""
        if self._is_own:
            self.engine.dispose()

    def _get_ready(self) -> None:
        schema = self._unmade
        if schema is not None:
            self.dialect.find()
            if not self._twice(lambda: self._look(lambda transaction: schema.is_made(transaction, str(self)))):
                self._twice(lambda: self._change(schema.make, _SCHEMA))
            self._unmade = None

    def _look(self, work: Work[T]) -> T:
        with self.dialect.call(writes=False), _Loan(self) as transaction:
            return work(transaction)

    def _in_one_moment(self, transaction: Transaction, work: Work[T]) -> T:
        self.dialect.begin(transaction, writes=False)
        return work(transaction)

    def _change(self, work: Work[T], lock: str | None) -> T:
        with self.dialect.call(writes=True), _Loan(self) as transaction:
            self.dialect.begin(transaction, writes=True, lock=lock)
            result = work(transaction)
            try:
                transaction.say("COMMIT")
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise LostConnection(
                    f"the connection to {self} was lost while a change was committed: {_said(error.orig)}. Nobody can "
                    "tell whether it was made. Look whether it is there before you make it again."
                ) from error
            return result

    def connected(self) -> PoolProxiedConnection:
        """Borrow a connection of the engine's pool."""
        try:
            return self.engine.raw_connection()
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise LostConnection(
                f"there is no connection to {self}: {_said(error)}. Nothing was changed. "
                "See that the server runs, or that the folder of the file exists and can be written to."
            ) from error

    def _twice(self, attempt: Callable[[], T]) -> T:
        """Make an attempt, and another one if the first has certainly changed nothing and may fare better."""
        try:
            return attempt()
        except DBAPIError as error:
            if not _changed_nothing(error):
                raise
            if error.connection_invalidated:
                self.engine.dispose()  # a server that has ended one has ended them all
        try:
            return attempt()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise LostConnection(
                f"the connection to {self} was lost twice: {_said(error.orig)}. Nothing was changed. "
                "See what ends connections, and make the call again."
            ) from error


class _Loan:
    """A connection of a database's pool, for one call. It is closed if it comes back after `close()`, or spoilt."""

    __slots__ = ("_database", "_pool", "_transaction")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool = database.engine.pool
        self._transaction = Transaction(database.engine, database.connected())

    def __enter__(self) -> Transaction:
        try:
            self._database.dialect.take(self._transaction)
        except BaseException as error:
            self._end(error)
            raise
        return self._transaction

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        pooled = self._transaction.pooled
        try:
            if error is None or not _spoils(error):
                self._database.dialect.give_back(self._transaction)
            else:
                pooled.invalidate()
        finally:
            pooled.close()
            if self._database.engine.pool is not self._pool:
                self._pool.dispose()


def _spoils(error: BaseException) -> bool:
    """Tell whether a connection is of no use after an error.

    After an fsync that failed SQLite remembers what the disk does not have. After Ctrl-C nobody knows what a driver
    was at.
    """
    return isinstance(error, DBAPIError | LostConnection) or not isinstance(error, Exception)


def _said(error: BaseException | None) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _changed_nothing(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _ROLLED_BACK
