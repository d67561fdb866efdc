"""Dialects: where SQLite and PostgreSQL need different SQL for a transaction to be atomic and durable.

Everything else is the same SQL. Both begin a transaction in a way that it cannot fail half-way because others change
the same data: SQLite takes its only lock, PostgreSQL a named one. Both have to flush a commit to disk before they
acknowledge it, even where their configuration says otherwise. Neither waits for others without a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from sqlalchemy import ClauseElement, ColumnElement, Table
from sqlalchemy.engine import Dialect as Writer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from pytest_wfstate.stores.sql.calls import Call
from pytest_wfstate.stores.sql.statements import Statement, Transaction


class Dialect(Protocol):
    """Where one database differs from the others."""

    transaction: ClassVar[type[Transaction]]
    """How statements are executed on its connections."""
    insert: ClassVar[Callable[..., Any]]
    """Builds an INSERT that supports ON CONFLICT."""
    writer: ClassVar[Writer]
    """Compiles statements."""
    has_table: ClassVar[Statement]
    """Returns a row if there is a table called `name`."""

    @staticmethod
    def insert_many(table: Table) -> ClauseElement:
        """Build an INSERT of any number of rows, whose values are given all at once."""

    @staticmethod
    def is_still(column: ColumnElement[Any]) -> ColumnElement[bool]:
        """Build the condition that a column of JSON holds what it was read as: the parameter `seen`."""

    def prepare(self) -> None:
        """Prepare the place where the database is, before the first connection."""

    def enter(self, call: Call, *, writes: bool) -> None:
        """Wait until a call may use the database, as far as other calls of this process are concerned."""

    def before_connecting(self) -> None:
        """Check that the database has not changed its place since the last call."""

    def accepts(self, pooled: PoolProxiedConnection) -> bool:
        """Whether a connection leads to the database that is there now. If not, it is replaced."""

    def configure(self, transaction: Transaction) -> None:
        """Configure a connection: it is usable, no transaction is open, and none begins implicitly."""

    def check(self, transaction: Transaction, *, writes: bool) -> None:
        """Check, before a call is acknowledged, that it was made in the database that is there now."""

    def restore(self, transaction: Transaction) -> None:
        """Restore the configuration of a connection that has no transaction open."""

    def is_atomic_alone(self, transaction: Transaction) -> bool:
        """Whether a statement needs nothing around it to be a transaction of its own."""

    def begin(self, transaction: Transaction, lock: str | None = None, *, pauses: bool = False) -> Sequence[str]:
        """Return the statements that begin a transaction. If it `pauses`, its client may take its time in between.

        With `lock`, other transactions with a lock of that name wait until this one ends.
        """

    @staticmethod
    def lacks_table(error: DBAPIError) -> bool:
        """Whether a statement failed because a table does not exist."""

    @staticmethod
    def is_rolled_back(error: DBAPIError) -> bool:
        """Whether what a change did before this error is certainly undone."""

    def close(self) -> None:
        """Forget what is known of the database."""
