"""A database: atomic transactions. Lost connections are retried once when that is safe, and reported otherwise.

A call that only reads is retried. So is a change whose connection turns out to be closed before anything was sent, and
one that the database itself has rolled back. A change is one message to a server: if the connection is lost after it
was sent, the outcome is unknown. A retry could undo what another worker did meanwhile, so the loss is reported.
Creating tables twice is harmless.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError

from pytest_wfstate.errors import LostConnection
from pytest_wfstate.stores.sql import calls, forks
from pytest_wfstate.stores.sql.calls import Call, FairQueue
from pytest_wfstate.stores.sql.connections import Connections
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.schema import Schema
from pytest_wfstate.stores.sql.sqlalchemy_engine import LONGEST_WAIT, open_engine, said, shown
from pytest_wfstate.stores.sql.sqlite_file import DEFAULT_MODE, check_mode
from pytest_wfstate.stores.sql.statements import Change, Statement, StatementResult, Transaction, Values

T = TypeVar("T")
Work = Callable[[Transaction], T]

_SCHEMA = "wfstate schema"  # the lock held while tables are created or dropped
_COMMIT = "COMMIT"
_ROLLED_BACK = {"40001", "40P01"}  # serialization_failure, deadlock_detected


class Database:
    """The tables of one store, in a database."""

    def __init__(self, where: str | URL | Engine, mode: int | None = None) -> None:
        engine, is_own = open_engine(where)
        self.engine = engine
        self.dialect = _dialect_of(engine, mode, is_own=is_own)
        self._connections = Connections(engine, self.dialect, keeps=is_own)
        self._schema: Schema | None = None
        self._is_made = False  # as far as this handle knows
        self._turns: weakref.WeakValueDictionary[str, FairQueue] = weakref.WeakValueDictionary()

    def __str__(self) -> str:
        return shown(self.engine)

    def needs(self, schema: Schema) -> None:
        """Create these tables before the next call."""
        self._schema, self._is_made = schema, False

    def drop(self, schema: Schema) -> None:
        """Drop these tables with everything in them."""
        self.dialect.prepare()
        self._retry_once(lambda: self._drop_once(schema))
        self.needs(schema)

    def ask(self, statement: Statement, values: Values) -> StatementResult:
        """Execute one statement that only reads: it sees one moment of the database, and needs no transaction."""
        return self._on_tables(
            lambda: self._run(lambda transaction: transaction.execute(statement, values), writes=False)
        )

    def change(self, statement: Statement, values: Values) -> StatementResult:
        """Execute one statement that changes something, atomically.

        Raises:
            LostConnection: as `write` does.

        """
        return self.write([(statement, values)])[0]

    def write(self, changes: Sequence[Change], lock: str | None = None) -> list[StatementResult]:
        """Execute statements atomically: all of them, or none.

        With `lock`, statements under a lock of the same name run before or after them, never meanwhile.

        Raises:
            LostConnection: the database cannot be reached, or the connection was lost and the outcome is unknown.

        """
        return self._on_tables(
            lambda: self._run(lambda transaction: self._send(transaction, changes, lock), writes=True)
        )

    def in_turn(self, name: str, work: Callable[[], T]) -> T:
        """Do work that reads what is called `name` and then changes it, after other threads that do the same.

        Each change makes whoever has read before it start again, so that many at once would take turns in the slowest
        way. Nothing else depends on it: a call that waits too long goes on, and so does a signal handler's.
        """
        with forks.guard:
            queue = self._turns.setdefault(name, FairQueue(1))

        def after_others(call: Call) -> T:
            if not queue.has(call.thread):
                queue.enter(call, LONGEST_WAIT)
            return work()

        return calls.run(after_others)

    def changed_nothing(self, error: BaseException) -> bool:
        """Whether a change that raised `error` has certainly not been made."""
        if isinstance(error, DBAPIError):
            return self.dialect.is_rolled_back(error)
        # One that is raised after something was sent has another cause than the driver's refusal to connect.
        refused = self.engine.dialect.loaded_dbapi.Error
        return isinstance(error, LostConnection) and isinstance(error.__cause__, refused | None)

    def close(self) -> None:
        """Close the connections, if the engine was made here. The next call would reconnect."""
        self._connections.close()
        self.dialect.close()
        self._is_made = False  # another database may be there next time

    def _on_tables(self, attempt: Callable[[], T]) -> T:
        """Create the tables if necessary and make an attempt; do both again if another handle drops them meanwhile.

        A statement that found no table has changed nothing, nor has its transaction.
        """
        try:
            self._make_tables()
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
        if not self._retry_once(lambda: self._run(lambda at: schema.is_made(at, str(self)), writes=False)):
            # Even if the connection is lost during COMMIT: tables that exist are not created again.
            self._retry_once(lambda: self._change(lambda transaction: schema.make(transaction, str(self))))
        self._is_made = True

    def _run(self, work: Work[T], *, writes: bool) -> T:
        """Do work on a connection."""

        def on_connection(call: Call) -> T:
            self.dialect.enter(call, writes=writes)
            borrowed = self._connections.borrow(call)
            transaction = borrowed.take()
            self.dialect.configure(transaction)
            result = work(transaction)
            self.dialect.check(transaction, writes=writes)
            borrowed.give_back(transaction)
            return result

        return calls.run(on_connection)

    def _send(self, transaction: Transaction, changes: Sequence[Change], lock: str | None) -> list[StatementResult]:
        """Execute a whole transaction, and report a connection that is lost meanwhile."""
        try:
            if lock is None and len(changes) == 1 and self.dialect.is_atomic_alone(transaction):
                return transaction.run(changes)
            begins = self.dialect.begin(transaction, lock)
            return transaction.run([*begins, *changes, _COMMIT])[len(begins) : -1]
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise LostConnection(
                f"the connection to {self} was lost after a change was sent: {said(error.orig)}. The change may or may "
                "not have been made. Check whether it is there before you retry."
            ) from error

    def _change(self, work: Work[T]) -> T:
        """Change tables, in a transaction whose later statements depend on earlier ones."""

        def atomically(transaction: Transaction) -> T:
            transaction.run(self.dialect.begin(transaction, _SCHEMA, pauses=True))
            result = work(transaction)
            transaction.execute_text(_COMMIT)
            return result

        return self._run(atomically, writes=True)

    def _drop_once(self, schema: Schema) -> None:
        """Drop tables, and report a connection that is lost during COMMIT."""
        try:
            self._change(lambda transaction: schema.drop(transaction, str(self)))
        except DBAPIError as error:
            if not (error.connection_invalidated and error.statement == _COMMIT):
                raise
            raise LostConnection(
                f"the connection to {self} was lost during COMMIT: {said(error.orig)}. The tables may or may not have "
                "been dropped. Check whether they are there before you retry."
            ) from error

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


def _dialect_of(engine: Engine, mode: int | None, *, is_own: bool) -> Dialect:
    """Return the dialect of an engine that `open_engine` has accepted. Each is imported when it is used."""
    if engine.dialect.name == "sqlite":
        from pytest_wfstate.stores.sql.sqlite import Sqlite

        return Sqlite(engine, DEFAULT_MODE if mode is None else check_mode(mode))
    if mode is not None:
        raise ValueError(
            f"mode={mode!r} was given for {shown(engine)}, which is not a file: modes are the permissions of a SQLite "
            "database. Leave it out."
        )
    from pytest_wfstate.stores.sql.postgres import Postgres

    return Postgres(engine, is_own=is_own)
