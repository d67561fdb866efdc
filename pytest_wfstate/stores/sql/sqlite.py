"""SQLite: one writer at a time; the write-ahead log lets others read meanwhile."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sqlalchemy import ClauseElement, ColumnElement, Engine, LargeBinary, Table, bindparam, cast, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.engine import Dialect as Writer
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import PoolProxiedConnection

from pytest_wfstate.errors import UnusableDatabase
from pytest_wfstate.stores.sql import forks
from pytest_wfstate.stores.sql.calls import Call, FairQueue
from pytest_wfstate.stores.sql.sqlalchemy_engine import LONGEST_WAIT, shown, unusable
from pytest_wfstate.stores.sql.sqlite_file import DEFAULT_MODE, SqliteFile
from pytest_wfstate.stores.sql.statements import Change, Statement, StatementResult, Transaction

_PAUSE = 0.005
_PRIMARY = 0xFF  # the part of an error code that extended codes share (sqlite.org/rescode.html)
_READY = "wfstate ready"  # in the info of a connection that is configured
_BEGINS = "wfstate begins"  # in the info of one that begins transactions implicitly

_writers: weakref.WeakValueDictionary[str, FairQueue] = weakref.WeakValueDictionary()  # by the path of a database


class SqliteTransaction(Transaction):
    """A connection to SQLite."""

    __slots__ = ()

    def run(self, statements: Sequence[Change | str]) -> list[StatementResult]:
        return [self._execute(statement) for statement in statements]

    def _execute(self, statement: Change | str) -> StatementResult:
        cursor = self.driver.cursor()
        text_ = ""
        try:
            if isinstance(statement, str):
                text_ = statement
                cursor.execute(text_)
            elif isinstance(statement[1], list):
                text_ = statement[0].named(statement[1][0])[0]
                cursor.executemany(text_, [statement[0].named(row)[1] for row in statement[1]])
            else:
                text_, values = statement[0].named(statement[1])
                cursor.execute(text_, values)
            return StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)
        except self.error as error:
            raise self.wrapped(text_, error) from error
        finally:
            cursor.close()  # a statement that is not done keeps its lock, even if its connection is closed


class Sqlite:
    """A SQLite database."""

    transaction: ClassVar[type[Transaction]] = SqliteTransaction
    insert: ClassVar[Callable[..., Any]] = staticmethod(sqlite.insert)
    writer: ClassVar[Writer] = pysqlite.dialect(paramstyle="named")
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"), writer
    )

    def __init__(self, engine: Engine, mode: int = DEFAULT_MODE) -> None:
        self._engine = engine
        self._file = SqliteFile(engine.url, mode)
        self._writers = _queue_of(self._file)
        self._longest_wait = LONGEST_WAIT

    @staticmethod
    def insert_many(table: Table) -> ClauseElement:
        return sqlite.insert(table)

    @staticmethod
    def is_still(column: ColumnElement[Any]) -> ColumnElement[bool]:
        return cast(column, LargeBinary) == bindparam("seen", type_=LargeBinary)  # JSON is read as bytes

    def prepare(self) -> None:
        self._file.make()

    def enter(self, call: Call, *, writes: bool) -> None:
        # Writers queue: in SQLite a waiter sleeps, longer each time, while others overtake it.
        if writes and not self._writers.enter(call, self._longest_wait):
            raise self._locked()
        forks.enter(call)

    def before_connecting(self) -> None:
        self._file.check_before()  # SQLite would create another one

    def accepts(self, pooled: PoolProxiedConnection) -> bool:
        return self._file.has(pooled.info)

    def configure(self, transaction: Transaction) -> None:
        driver, info = transaction.driver, transaction.pooled.info
        self._file.use(info)
        if driver.in_transaction:
            transaction.execute_text("ROLLBACK")
        if driver.isolation_level is not None:  # of the user's engine: each change would begin a transaction
            info[_BEGINS] = driver.isolation_level
            driver.isolation_level = None
        if _READY not in info:
            self._file.check_beside()
            self._check_encoding(transaction)
            transaction.execute_text("PRAGMA synchronous=FULL")
            self._longest_wait = transaction.execute_text("PRAGMA busy_timeout").value / 1000
            self._use_wal(transaction)
            info[_READY] = True

    def check(self, transaction: Transaction, *, writes: bool) -> None:
        self._file.note_log(transaction.pooled.info)
        if writes:
            self._file.check_change(transaction.pooled.info)
        else:
            self._file.check_read()

    def restore(self, transaction: Transaction) -> None:
        if _BEGINS in transaction.pooled.info:
            transaction.driver.isolation_level = transaction.pooled.info[_BEGINS]

    def is_atomic_alone(self, transaction: Transaction) -> bool:  # noqa: ARG002
        return True

    def begin(self, *_: object, pauses: bool = False) -> Sequence[str]:  # noqa: ARG002
        return ["BEGIN IMMEDIATE"]  # a writer has the whole database locked, and nobody ends it for idling

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return "no such table" in str(error.orig)  # it has no error code of its own

    @staticmethod
    def is_rolled_back(error: DBAPIError) -> bool:
        # After an I/O error the commit may be in the log, and found there by the next connection.
        return getattr(error.orig, "sqlite_errorcode", 0) & _PRIMARY == sqlite3.SQLITE_BUSY

    def close(self) -> None:
        self._file.forget()

    def _check_encoding(self, transaction: Transaction) -> None:
        encoding = transaction.execute_text("PRAGMA encoding").value
        if encoding != "UTF-8":  # records are read and compared as bytes
            raise unusable(
                shown(self._engine),
                f"its encoding is {encoding}, not UTF-8, and it cannot be changed: use another file",
            )

    def _use_wal(self, transaction: Transaction) -> None:
        """Switch the database to WAL mode, which the file remembers.

        SQLite does not wait for others when it changes the mode (sqlite.org/wal.html): of two processes that start
        together, one gets "database is locked".
        """
        pauses = self._longest_wait / _PAUSE
        while transaction.execute_text("PRAGMA journal_mode").value != "wal":
            try:
                mode = transaction.execute_text("PRAGMA journal_mode=WAL").value
            except OperationalError as error:
                if "locked" not in str(error.orig) or pauses <= 0:
                    raise
                pauses -= 1
                time.sleep(_PAUSE)
                continue
            if mode != "wal":
                raise UnusableDatabase(
                    f"{shown(self._engine)} stays in journal mode {mode!r}. Stores need WAL, where an acknowledged "
                    "commit survives a power cut. Put the database on a local disk."
                )

    def _locked(self) -> OperationalError:
        holder = self._writers.holder()
        by = "another thread" if holder is None else f"thread {holder.thread}"
        error = sqlite3.OperationalError(
            f"database is locked: {by} of this process is writing to {shown(self._engine)}, and this call gave up "
            f"waiting for its turn after {self._longest_wait:g} seconds. Nothing was changed"
        )
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        return OperationalError(None, None, error)


def _queue_of(file: SqliteFile) -> FairQueue:
    """Return the queue of all writers of this process to a file, whatever their handles."""
    path = os.path.realpath(file.path)
    with forks.guard:
        return _writers.setdefault(path, FairQueue(1))
