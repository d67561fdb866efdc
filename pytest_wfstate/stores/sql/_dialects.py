"""Dialects: what SQLite and PostgreSQL need said differently so that a transaction is one step, and lasts.

All else is the same SQL. Both begin a transaction that writes so that it cannot fail half-way for having read before:
SQLite takes the one lock there is, PostgreSQL one of the name that is asked for. Both are told to have a commit on
disk before they acknowledge it, should somebody have told them otherwise.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError

from pytest_wfstate.errors import UnusableDatabase
from pytest_wfstate.stores.sql import _forks
from pytest_wfstate.stores.sql._engine import shown
from pytest_wfstate.stores.sql._folder import make_folder_of

_PAUSE = 0.005


class Dialect(Protocol):
    """What a database does differently."""

    insert: Callable[..., Any]
    """Builds an INSERT that knows ON CONFLICT."""

    def find(self) -> None:
        """Prepare the place where the database is, before the first connection to it."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:
        """Surround all that a call does."""

    def begin(self, connection: Connection, *, writes: bool) -> None:
        """Begin a transaction, which sees one moment of the database if it only reads."""

    def lock(self, connection: Connection, name: str) -> None:
        """Have other transactions that lock `name` wait for the end of this one."""

    def commit(self, connection: Connection) -> None:
        """Bring to disk what was done."""


class Sqlite:
    """SQLite: one writer at a time; a log (WAL) beside the database lets others read meanwhile."""

    insert = staticmethod(sqlite.insert)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = threading.Lock()

    def find(self) -> None:
        database = str(self._engine.url.database)
        if not database.startswith("file:"):
            make_folder_of(Path(database))

    @contextmanager
    def call(self, *, writes: bool) -> Iterator[None]:
        # Threads queue here: in SQLite who waits sleeps, longer each time, while others pass.
        with _forks.no_fork(), self._writer if writes else nullcontext():
            yield

    def begin(self, connection: Connection, *, writes: bool) -> None:
        connection.begin()
        _leave_transaction(connection)
        if "wfstate" not in connection.info:
            connection.exec_driver_sql("PRAGMA synchronous=FULL")
            self._keep_log(connection)
            connection.info["wfstate"] = True
        _execute(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")

    def lock(self, connection: Connection, name: str) -> None:
        """Nothing is left to do: who writes has the database for itself."""

    def commit(self, connection: Connection) -> None:
        _execute(connection, "COMMIT")  # whatever mode of transactions the driver is in

    def _keep_log(self, connection: Connection) -> None:
        """Have the database in WAL mode, which a file remembers.

        SQLite does not wait for others when it changes the mode (sqlite.org/wal.html): of two processes that start at
        once, one is told that the database is locked.
        """
        deadline = time.monotonic() + connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() / 1000
        while connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
            try:
                mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar_one()
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

    insert = staticmethod(postgresql.insert)

    def __init__(self, engine: Engine) -> None:
        """Nothing is needed of the engine."""

    def find(self) -> None:
        """It is where its server keeps it."""

    def call(self, *, writes: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def begin(self, connection: Connection, *, writes: bool) -> None:
        # Writers see what was committed before them, statement by statement; readers one moment, for all statements.
        level = "READ COMMITTED" if writes else "REPEATABLE READ"
        connection.execution_options(isolation_level=level)
        if "wfstate" not in connection.info:
            connection.execute(_COMMIT_TO_DISK)
            connection.commit()
            connection.info["wfstate"] = True

    def lock(self, connection: Connection, name: str) -> None:
        connection.execute(_LOCK, {"number": _number(name)})

    def commit(self, connection: Connection) -> None:
        connection.commit()


def dialect_of(engine: Engine) -> Dialect:
    """Give the dialect of an engine that can hold a store."""
    return Sqlite(engine) if engine.dialect.name == "sqlite" else Postgres(engine)


_COMMIT_TO_DISK = text(
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_LOCK = text("SELECT pg_advisory_xact_lock(:number)")


def _number(name: str) -> int:
    """Give the number that stands for a lock. Two names that share one wait for each other, which does no harm."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)


def _leave_transaction(connection: Connection) -> None:
    """End the transaction that an engine of the user's may begin by itself: it would be of the wrong kind."""
    if _driver(connection).in_transaction:
        _execute(connection, "ROLLBACK")


def _execute(connection: Connection, statement: str) -> None:
    """Say something to SQLite that has no parameters and no result, which SQLAlchemy would make ten times as long."""
    try:
        _driver(connection).execute(statement)
    except sqlite3.Error as error:
        raise OperationalError(statement, None, error) from error


def _driver(connection: Connection) -> sqlite3.Connection:
    driver: Any = connection.connection.driver_connection
    return driver  # type: ignore[no-any-return]
