"""Dialects: where SQLite and PostgreSQL need different SQL for a transaction to be atomic and durable.

Everything else is the same SQL. Both begin a transaction that writes in a way that it cannot fail half-way because it
has read before: SQLite takes its only lock, PostgreSQL a named one. Both have to flush a commit to disk before they
acknowledge it, even where their configuration says otherwise. Neither waits for others without a limit.
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
from pytest_wfstate.stores.sql.folder import make_folder_of
from pytest_wfstate.stores.sql.sqlalchemy_engine import LONGEST_WAIT, shown
from pytest_wfstate.stores.sql.statements import Statement, Transaction

_PAUSE = 0.005
_READY = "wfstate ready"  # in the info of a connection that is configured
_BEGINS = "wfstate begins"  # in the info of one that begins transactions implicitly
_UNDEFINED_TABLE = "42P01"
_LONGEST_PAUSE = "5s"  # between statements of a transaction: a store only parses a record there


class Dialect(Protocol):
    """Where one database differs from the others."""

    insert: ClassVar[Callable[..., Any]]
    """Builds an INSERT that supports ON CONFLICT."""
    writer: ClassVar[Writer]
    """Compiles statements, with named values."""
    has_table: ClassVar[Statement]
    """Returns a row if there is a table called `name`."""
    autocommit_is_atomic: ClassVar[bool]
    """Whether a single statement needs no transaction: its answer cannot get lost, so its outcome is always known."""

    def prepare(self) -> None:
        """Prepare the place where the database is, before the first connection."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:
        """Return the context in which a call does all its work."""

    def configure(self, transaction: Transaction) -> None:
        """Configure a connection: no transaction is open, and none begins implicitly."""

    def restore(self, transaction: Transaction) -> None:
        """Restore a connection's configuration, with no transaction open."""

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:
        """Begin a transaction, which sees one moment of the database if it only reads.

        With `lock`, other transactions with a lock of that name wait until this one ends.
        """

    @staticmethod
    def execute_texts(transaction: Transaction, texts: Sequence[str]) -> None:
        """Execute statements that have neither values nor results."""

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        """Whether a statement failed because a table does not exist."""


class Sqlite:
    """SQLite: one writer at a time; the write-ahead log lets others read meanwhile."""

    autocommit_is_atomic: ClassVar[bool] = True
    insert: ClassVar[Callable[..., Any]] = staticmethod(sqlite.insert)
    writer: ClassVar[Writer] = pysqlite.dialect(paramstyle="named")
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"), writer
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = forks.ForkBarrier()
        # Threads queue for this lock: in SQLite a waiter sleeps, longer each time, while others overtake it.
        self._writing = forks.ForkBarrier(threading.Lock())

    def prepare(self) -> None:
        database = str(self._engine.url.database)
        if not database.startswith("file:"):
            make_folder_of(Path(database))

    def call(self, *, writes: bool) -> AbstractContextManager[None]:
        return self._writing if writes else self._reading

    def configure(self, transaction: Transaction) -> None:
        driver = transaction.driver
        if driver.in_transaction:
            transaction.execute_text("ROLLBACK")
        if driver.isolation_level is not None:  # of the user's engine: each change would begin a transaction
            transaction.pooled.info[_BEGINS] = driver.isolation_level
            driver.isolation_level = None
        if _READY not in transaction.pooled.info:
            transaction.execute_text("PRAGMA synchronous=FULL")
            self._use_wal(transaction)
            transaction.pooled.info[_READY] = True

    def restore(self, transaction: Transaction) -> None:
        if transaction.driver.in_transaction:
            transaction.driver.rollback()
        if _BEGINS in transaction.pooled.info:
            transaction.driver.isolation_level = transaction.pooled.info[_BEGINS]

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:  # noqa: ARG002
        # A writer has the whole database locked already.
        transaction.execute_text("BEGIN IMMEDIATE" if writes else "BEGIN")

    @staticmethod
    def execute_texts(transaction: Transaction, texts: Sequence[str]) -> None:
        for text_ in texts:
            transaction.execute_text(text_)

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return "no such table" in str(error.orig)  # it has no error code of its own

    def _use_wal(self, transaction: Transaction) -> None:
        """Switch the database to WAL mode, which the file remembers.

        SQLite does not wait for others when it changes the mode (sqlite.org/wal.html): of two processes that start
        together, one gets "database is locked".
        """
        deadline = time.monotonic() + transaction.execute_text("PRAGMA busy_timeout").value / 1000
        while transaction.execute_text("PRAGMA journal_mode").value != "wal":
            try:
                mode = transaction.execute_text("PRAGMA journal_mode=WAL").value
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
                continue
            if mode != "wal":
                raise UnusableDatabase(
                    f"{shown(self._engine)} stays in journal mode {mode!r}. Stores need WAL, where an acknowledged "
                    "commit survives a power cut. Put the database on a local disk."
                )


class Postgres:
    """PostgreSQL."""

    autocommit_is_atomic: ClassVar[bool] = False
    insert: ClassVar[Callable[..., Any]] = staticmethod(postgresql.insert)
    writer: ClassVar[Writer] = psycopg.dialect()  # type: ignore[no-untyped-call]
    # Ask the catalogue itself: lookups by name are cached, and may miss a table that another session just created.
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM pg_catalog.pg_class WHERE relname = :name AND pg_table_is_visible(oid)"), writer
    )

    def __init__(self, engine: Engine) -> None:
        """Take an engine, as every dialect does, and need nothing of it."""

    def prepare(self) -> None:
        """Do nothing: the database is wherever its server keeps it."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def configure(self, transaction: Transaction) -> None:
        driver = transaction.driver
        forks.note(driver)
        if not driver.autocommit:  # of the user's engine: each statement would begin a transaction
            driver.rollback()
            driver.autocommit = True
            transaction.pooled.info[_BEGINS] = True

    def restore(self, transaction: Transaction) -> None:
        transaction.driver.rollback()  # sends nothing if none is open
        if _BEGINS in transaction.pooled.info:
            transaction.driver.autocommit = False

    def begin(self, transaction: Transaction, *, writes: bool, lock: str | None = None) -> None:
        # Each statement of a writer sees what is committed by then; all statements of a reader see one moment.
        # A session whose client vanished would keep its locks for ever, so the server ends it for idling.
        end_if_idle = f"SET LOCAL idle_in_transaction_session_timeout = '{_LONGEST_PAUSE}'"
        if not writes:
            self.execute_texts(transaction, ["BEGIN ISOLATION LEVEL REPEATABLE READ", end_if_idle])
            return
        locked = [] if lock is None else [f"SELECT pg_advisory_xact_lock({_number(lock)})"]
        settings = [end_if_idle, _COMMIT_TO_DISK, _LIMIT_WAIT]
        self.execute_texts(transaction, ["BEGIN ISOLATION LEVEL READ COMMITTED", *settings, *locked])

    @staticmethod
    def execute_texts(transaction: Transaction, texts: Sequence[str]) -> None:
        transaction.execute_text(";".join(texts))  # in one message

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of an engine that `open_engine` has accepted."""
    return Sqlite(engine) if engine.dialect.name == "sqlite" else Postgres(engine)


def _override(name: str, given: str, value: str) -> str:
    """Return SQL that replaces one value of a setting with another until the transaction ends."""
    return f"SELECT set_config('{name}', '{value}', true) WHERE current_setting('{name}') = '{given}'"


_COMMIT_TO_DISK = _override("synchronous_commit", "off", "on")
_LIMIT_WAIT = _override("lock_timeout", "0", f"{LONGEST_WAIT}s")


def _number(name: str) -> int:
    """Return the number of a named lock. Two names that share one wait for each other, which does no harm."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
