"""Dialects: what SQLite and PostgreSQL need said differently so that a transaction is one step, and lasts.

All else is the same SQL. Both begin a transaction that writes so that it cannot fail half-way for having read before:
SQLite takes the one lock there is, PostgreSQL one of the name that is asked for. Both are told to have a commit on
disk before they acknowledge it, should somebody have told them otherwise. Neither waits for others for ever.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol

from sqlalchemy import Engine, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.engine import Dialect as Writer
from sqlalchemy.exc import DBAPIError, OperationalError

from pytest_wfstate.errors import UnusableDatabase
from pytest_wfstate.stores.sql import forks
from pytest_wfstate.stores.sql.engine import LONGEST_WAIT, shown
from pytest_wfstate.stores.sql.folder import make_folder_of
from pytest_wfstate.stores.sql.statements import Statement, Transaction

_PAUSE = 0.005
_READY = "wfstate ready"  # in the notes of a connection that was told what it needs to know
_BEGINS = "wfstate begins"  # in those of one that begins transactions by itself
_UNDEFINED_TABLE = "42P01"
_LONGEST_PAUSE = "5s"  # between statements of a transaction, where a store needs no more than it takes to read a record


class Dialect(Protocol):
    """What a database does differently."""

    insert: ClassVar[Callable[..., Any]]
    """Builds an INSERT that knows ON CONFLICT."""
    writer: ClassVar[Writer]
    """Writes statements, with named values."""
    has_table: ClassVar[Statement]
    """Gives a row if there is a table called `name`."""
    autocommit_is_atomic: ClassVar[bool]
    """Whether a statement needs no transaction around it: nobody can lose the answer, and not know what came of it."""

    def find(self) -> None:
        """Prepare the place where the database is, before the first connection to it."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:
        """Surround all that a call does."""

    def take(self, transaction: Transaction) -> None:
        """Make a connection ready: no transaction is open, and none begins by itself."""

    def give_back(self, transaction: Transaction) -> None:
        """Leave a connection as it was found, with no transaction open."""

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:
        """Begin a transaction, which sees one moment of the database if it only reads.

        With `lock`, other transactions with a lock of that name wait for the end of this one.
        """

    @staticmethod
    def say_all(transaction: Transaction, texts: Sequence[str]) -> None:
        """Make statements that have neither values nor results."""

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        """Tell whether a statement failed for a table that is not there."""


class Sqlite:
    """SQLite: one writer at a time; a log (WAL) beside the database lets others read meanwhile."""

    autocommit_is_atomic: ClassVar[bool] = True
    insert: ClassVar[Callable[..., Any]] = staticmethod(sqlite.insert)
    writer: ClassVar[Writer] = pysqlite.dialect(paramstyle="named")
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"), writer
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = forks.ForkBarrier()
        # Threads queue for the lock: in SQLite who waits sleeps, longer each time, while others pass.
        self._writing = forks.ForkBarrier(threading.Lock())

    def find(self) -> None:
        database = str(self._engine.url.database)
        if not database.startswith("file:"):
            make_folder_of(Path(database))

    def call(self, *, writes: bool) -> AbstractContextManager[None]:
        return self._writing if writes else self._reading

    def take(self, transaction: Transaction) -> None:
        driver = transaction.driver
        if driver.in_transaction:
            transaction.say("ROLLBACK")
        if driver.isolation_level is not None:  # one of the user's engine: it would begin one at each change
            transaction.pooled.info[_BEGINS] = driver.isolation_level
            driver.isolation_level = None
        if _READY not in transaction.pooled.info:
            transaction.say("PRAGMA synchronous=FULL")
            self._keep_log(transaction)
            transaction.pooled.info[_READY] = True

    def give_back(self, transaction: Transaction) -> None:
        if transaction.driver.in_transaction:
            transaction.driver.rollback()
        if _BEGINS in transaction.pooled.info:
            transaction.driver.isolation_level = transaction.pooled.info[_BEGINS]

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:  # noqa: ARG002
        # Who writes has the database for itself, so there is nothing else to lock.
        transaction.say("BEGIN IMMEDIATE" if writes else "BEGIN")

    @staticmethod
    def say_all(transaction: Transaction, texts: Sequence[str]) -> None:
        for one in texts:
            transaction.say(one)

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return "no such table" in str(error.orig)  # it has no number of its own

    def _keep_log(self, transaction: Transaction) -> None:
        """Have the database in WAL mode, which a file remembers.

        SQLite does not wait for others when it changes the mode (sqlite.org/wal.html): of two processes that start at
        once, one is told that the database is locked.
        """
        deadline = time.monotonic() + transaction.say("PRAGMA busy_timeout").value / 1000
        while transaction.say("PRAGMA journal_mode").value != "wal":
            try:
                mode = transaction.say("PRAGMA journal_mode=WAL").value
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
                continue
            if mode != "wal":
                raise UnusableDatabase(
                    f"{shown(self._engine)} stays in journal mode {mode!r}. A store asks for WAL, where a commit that "
                    "was acknowledged survives a power cut. Put the database on a local disk."
                )


class Postgres:
    """PostgreSQL."""

    autocommit_is_atomic: ClassVar[bool] = False
    insert: ClassVar[Callable[..., Any]] = staticmethod(postgresql.insert)
    writer: ClassVar[Writer] = psycopg.dialect()  # type: ignore[no-untyped-call]
    # Asked of the catalogue itself: what knows a table by its name may not have heard yet that another has made it.
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM pg_catalog.pg_class WHERE relname = :name AND pg_table_is_visible(oid)"), writer
    )

    def __init__(self, engine: Engine) -> None:
        """Nothing is needed of the engine."""

    def find(self) -> None:
        """It is where its server keeps it."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def take(self, transaction: Transaction) -> None:
        driver, notes = transaction.driver, transaction.pooled.info
        forks.note(driver)
        if not driver.autocommit:  # one of the user's engine: it would begin a transaction at each statement
            driver.rollback()
            driver.autocommit = True
            notes[_BEGINS] = True

    def give_back(self, transaction: Transaction) -> None:
        transaction.driver.rollback()  # nothing is said to the server if none is open
        if _BEGINS in transaction.pooled.info:
            transaction.driver.autocommit = False

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:
        # Writers see what was committed before them, statement by statement; readers one moment, for all statements.
        # A session whose client is gone without a word would keep its locks for ever, were it not ended for idling.
        end_if_idle = f"SET LOCAL idle_in_transaction_session_timeout = '{_LONGEST_PAUSE}'"
        if not writes:
            self.say_all(transaction, ["BEGIN ISOLATION LEVEL REPEATABLE READ", end_if_idle])
            return
        locked = [] if lock is None else [f"SELECT pg_advisory_xact_lock({_number(lock)})"]
        told = [end_if_idle, _COMMIT_TO_DISK, _WAIT_NOT_FOR_EVER]
        self.say_all(transaction, ["BEGIN ISOLATION LEVEL READ COMMITTED", *told, *locked])

    @staticmethod
    def say_all(transaction: Transaction, texts: Sequence[str]) -> None:
        transaction.say(";".join(texts))  # it takes all of them at once

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE


def dialect_of(engine: Engine) -> Dialect:
    """Give the dialect of an engine that can hold a store."""
    return Sqlite(engine) if engine.dialect.name == "sqlite" else Postgres(engine)


def _replaced(name: str, given: str, value: str) -> str:
    """Say that a setting has a value until the transaction ends, if the one that was given will not do."""
    return f"SELECT set_config('{name}', '{value}', true) WHERE current_setting('{name}') = '{given}'"


_COMMIT_TO_DISK = _replaced("synchronous_commit", "off", "on")
_WAIT_NOT_FOR_EVER = _replaced("lock_timeout", "0", f"{LONGEST_WAIT}s")


def _number(name: str) -> int:
    """Give the number that stands for a lock. Two names that share one wait for each other, which does no harm."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
