"""A database: transactions that are one step, tried again where the connection was lost and that is safe.

A transaction whose connection is lost before COMMIT was sent has changed nothing, so it is made once more. If the
connection is lost in COMMIT itself nobody knows. To make the call again could undo what another worker did meanwhile,
so it is reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql._dialects import dialect_of
from pytest_wfstate.stores.sql._engine import open_engine, shown
from pytest_wfstate.stores.sql._schema import Schema

T = TypeVar("T")
Work = Callable[[Connection], T]

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

    def read(self, work: Work[T]) -> T:
        """Do work that only looks, and sees one moment of the database."""
        self._get_ready()
        return self._twice(lambda: self._look(work))

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
            if not self._twice(lambda: self._look(lambda connection: schema.is_made(connection, str(self)))):
                self._twice(lambda: self._change(schema.make, _SCHEMA))
            self._unmade = None

    def _look(self, work: Work[T]) -> T:
        with self.dialect.call(writes=False), self._connection() as connection:
            self.dialect.begin(connection, writes=False)
            return work(connection)

    def _change(self, work: Work[T], lock: str | None) -> T:
        with self.dialect.call(writes=True), self._connection() as connection:
            self.dialect.begin(connection, writes=True)
            if lock is not None:
                self.dialect.lock(connection, lock)
            result = work(connection)
            try:
                self.dialect.commit(connection)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise LostConnection(
                    f"the connection to {self} was lost while a change was committed: {_said(error)}. Nobody can tell "
                    "whether it was made. Look whether it is there before you make it again."
                ) from error
            return result

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Borrow a connection. One that comes back after `close()`, or with an error, is closed."""
        pool = self.engine.pool
        try:
            with self._connected() as connection:
                try:
                    yield connection
                except DBAPIError:
                    # After an fsync that failed SQLite remembers what the disk does not have.
                    connection.invalidate()
                    raise
        finally:
            if self.engine.pool is not pool:
                pool.dispose()

    def _connected(self) -> Connection:
        try:
            return self.engine.connect()
        except DBAPIError as error:
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
        try:
            return attempt()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise LostConnection(
                f"the connection to {self} was lost twice: {_said(error)}. Nothing was changed. "
                "See what ends connections, and make the call again."
            ) from error


def _said(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split()).rstrip(".")


def _changed_nothing(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _ROLLED_BACK
