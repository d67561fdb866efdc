"""PostgreSQL: every transaction of a store is one message, so it never waits for its client."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from psycopg import pq
from sqlalchemy import ARRAY, ClauseElement, ColumnElement, Engine, Table, bindparam, func, select, text
from sqlalchemy import column as column_of
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg as sqlalchemy_psycopg
from sqlalchemy.engine import Dialect as Writer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from pytest_wfstate.stores.sql import forks, libpq
from pytest_wfstate.stores.sql.calls import Call
from pytest_wfstate.stores.sql.sqlalchemy_engine import LONGEST_WAIT, shown, unusable
from pytest_wfstate.stores.sql.statements import Change, Statement, StatementResult, Transaction

_BEGINS = "wfstate begins"  # in the info of a connection that begins transactions implicitly
_SETTINGS = "wfstate settings"  # in the info of a connection: what its transactions set
_IF_IT_PAUSES = "wfstate settings for pauses"
_IS_SET_UP = "wfstate session"  # in the info of a connection whose session has all these settings
_CONFIGURED = (
    "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), "
    "current_setting('server_encoding'), current_setting('client_encoding'), pg_backend_pid()"
)
_ENCODING = "UTF8"
_ISOLATION = "READ COMMITTED"
_UNDEFINED_TABLE = "42P01"
_LONGEST_PAUSE = 5
_CANCEL_WAIT = 5.0


class PostgresTransaction(Transaction):
    """A connection to PostgreSQL."""

    __slots__ = ()

    def run(self, statements: Sequence[Change | str]) -> list[StatementResult]:
        message = [_written(statement) for statement in statements]
        try:
            return libpq.exchange(self.driver, message)
        except libpq.StatementFailed as failed:
            failing = message[min(failed.number, len(message) - 1)][0]
            raise self.wrapped(failing, failed.error) from failed.error

    def discard(self) -> None:
        if self.driver.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            # Otherwise the server would go on, and commit what its client has given up on.
            with contextlib.suppress(psycopg.Error):
                self.driver.cancel_safe(timeout=_CANCEL_WAIT)
        super().discard()


class Postgres:
    """A PostgreSQL database."""

    transaction: ClassVar[type[Transaction]] = PostgresTransaction
    insert: ClassVar[Callable[..., Any]] = staticmethod(postgresql.insert)
    writer: ClassVar[Writer] = sqlalchemy_psycopg.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    # Ask the catalogue itself: lookups by name are cached, and may miss a table that another session just created.
    has_table: ClassVar[Statement] = Statement(
        text("SELECT 1 FROM pg_catalog.pg_class WHERE relname = :name AND pg_table_is_visible(oid)"), writer
    )

    def __init__(self, engine: Engine, *, is_own: bool) -> None:
        self._engine = engine
        self._is_own = is_own

    @staticmethod
    def insert_many(table: Table) -> ClauseElement:
        arrays = [bindparam(column.name, type_=ARRAY(column.type)) for column in table.columns]
        names = [column_of(column.name, column.type) for column in table.columns]
        rows = func.unnest(*arrays).table_valued(*names).render_derived()
        return postgresql.insert(table).from_select(list(table.columns), select(rows))

    @staticmethod
    def is_still(column: ColumnElement[Any]) -> ColumnElement[bool]:
        return column == bindparam("seen", type_=column.type)

    def prepare(self) -> None:
        """Do nothing: the database is wherever its server keeps it."""

    def enter(self, call: Call, *, writes: bool) -> None:
        """Do nothing: the server sees to it that calls do not get in each other's way."""

    def before_connecting(self) -> None:
        """Do nothing: the server would not create another database."""

    def accepts(self, pooled: PoolProxiedConnection) -> bool:  # noqa: ARG002
        return True

    def configure(self, transaction: Transaction) -> None:
        driver = transaction.driver
        forks.note(driver)
        if not libpq.is_alive(driver):
            raise transaction.wrapped(None, psycopg.OperationalError("the server has closed the connection"))
        if not driver.autocommit:  # of the user's engine: each statement would begin a transaction
            driver.rollback()
            driver.autocommit = True
            transaction.pooled.info[_BEGINS] = True
        if _SETTINGS not in transaction.pooled.info:
            self._choose_settings(transaction)

    def _choose_settings(self, transaction: Transaction) -> None:
        """Choose what a transaction sets, by what the server, the user and the session are configured to."""
        (commit, wait, pause, server, client, session), *_ = transaction.execute_text(_CONFIGURED).rows
        if {server, client} != {_ENCODING}:
            raise unusable(
                shown(self._engine),
                f"its encoding is {server} and that of its connections is {client}, and only {_ENCODING} can hold "
                f"every text: create it with ENCODING '{_ENCODING}', and leave out client_encoding",
            )
        # A session whose client vanished would keep its locks for ever, so the server ends it for idling.
        settings = {
            "synchronous_commit": "on" if commit == "off" else commit,
            "lock_timeout": f"{LONGEST_WAIT}s" if wait == "0" else wait,
        }
        pauses = {"idle_in_transaction_session_timeout": f"{_LONGEST_PAUSE}s" if pause == "0" else pause}
        info = transaction.pooled.info
        # A pooler lends its sessions: it has to give its clients process ids of its own, or none could cancel a call.
        if self._is_own and session == transaction.driver.pgconn.backend_pid:
            transaction.run([*_set("SESSION", {**settings, **pauses, "default_transaction_isolation": _ISOLATION})])
            info.update({_IF_IT_PAUSES: [], _IS_SET_UP: True, _SETTINGS: []})
        else:
            # Every transaction sets all of them: behind a pooler, it may have a session that is configured otherwise.
            info.update({_IF_IT_PAUSES: _set("LOCAL", pauses), _SETTINGS: _set("LOCAL", settings)})

    def check(self, transaction: Transaction, *, writes: bool) -> None:
        """Do nothing: the server has acknowledged it."""

    def restore(self, transaction: Transaction) -> None:
        if _BEGINS in transaction.pooled.info:
            transaction.driver.autocommit = False

    def is_atomic_alone(self, transaction: Transaction) -> bool:
        return _IS_SET_UP in transaction.pooled.info

    def begin(self, transaction: Transaction, lock: str | None = None, *, pauses: bool = False) -> Sequence[str]:
        # Each statement sees what is committed by then.
        begins = [f"BEGIN ISOLATION LEVEL {_ISOLATION}", *transaction.pooled.info[_SETTINGS]]
        if pauses:
            begins += transaction.pooled.info[_IF_IT_PAUSES]
        return begins if lock is None else [*begins, f"SELECT pg_advisory_xact_lock({_number(lock)})"]

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE

    @staticmethod
    def is_rolled_back(error: DBAPIError) -> bool:
        return not error.connection_invalidated  # the server itself reported it, instead of a commit

    def close(self) -> None:
        """Do nothing: nothing is known of the database."""


def _set(scope: str, settings: Mapping[str, str]) -> list[str]:
    return [f"SET {scope} {name} = '{value}'" for name, value in settings.items()]


def _written(statement: Change | str) -> tuple[str, Sequence[Any]]:
    if isinstance(statement, str):
        return statement, ()
    built, values = statement
    if isinstance(values, list):
        values = {name: [row[name] for row in values] for name in values[0]}
    return built.numbered(values)


def _number(name: str) -> int:
    """Return the number of a named lock. Two names that share one wait for each other, which does no harm."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
