"""What the SQL stores share: the database, a clock, and how a record is read from a row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar

from sqlalchemy import URL, ClauseElement, Engine, Table

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import Store
from pytest_wfstate.stores.sql.database import Database
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.rows import Row
from pytest_wfstate.stores.sql.schema import Schema, check_prefix
from pytest_wfstate.stores.sql.statements import Statement

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound="Statements")


class Statements:
    """The tables of a contract and the statements of its store, built once for all handles."""

    contract: ClassVar[str]

    def __init__(self, prefix: str, dialect: type[Dialect]) -> None:
        self.schema = Schema(self.contract, prefix, dialect)
        self._dialect = dialect
        self._begin(dialect.insert)

    def _begin(self, insert: Callable[..., Any]) -> None:
        """Build them. `insert` supports ON CONFLICT."""
        raise NotImplementedError

    def _statement(self, built: ClauseElement) -> Statement:
        return Statement(built, self._dialect.writer)

    def _insert_many(self, table: Table) -> Statement:
        return self._statement(self._dialect.insert_many(table))

    @classmethod
    @functools.lru_cache(maxsize=64)
    def built(cls, prefix: str, dialect: type[Dialect]) -> Self:
        """Return the statements for a prefix and dialect, built on first use."""
        return cls(prefix, dialect)


class SqlStore(Store, Generic[S]):
    """A store in a database: `where` is a URL or a SQLAlchemy engine; the names of its tables begin with `prefix`.

    Stores of several contracts may share a database and a prefix. `close()` does not dispose of an engine that was
    passed in. `clock` stands in for the time of day. `mode` are the permissions of a SQLite file that the store
    creates, by default 0o600; those of a new folder follow from it.
    """

    statements: type[S]

    def __init__(
        self, where: str | URL | Engine, *, prefix: str = "wfstate", clock: Clock = now, mode: int | None = None
    ) -> None:
        self._clock = clock
        self._database = Database(where, mode)
        self._sql = self.statements.built(check_prefix(prefix), type(self._database.dialect))
        self._database.needs(self._sql.schema)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._database)!r})"

    def drop(self) -> None:
        """Delete everything: drop the tables of this store. The next call creates them again.

        Raises:
            NewerSchema: a later release created them. They are left alone.

        """
        self._database.drop(self._sql.schema)

    def close(self) -> None:
        super().close()
        self._database.close()

    async def __aexit__(self, *_: object) -> None:
        await self._threads.run(self.close)  # SQLite tidies up when its last connection is closed


def parse(kind: type[R], text: Any, table: Table, row: Row, row_of: Callable[[R], Row] = lambda _: {}) -> R:
    """Parse a record from a row of `table`; `row_of` returns the columns that its own content determines.

    Raises:
        CorruptRecord: the row does not hold such a record, or holds that of another row.

    """
    where = place(table, row)
    record = kind.from_json(text, where)
    own = row_of(record)
    if any(row[name] != value for name, value in own.items()):
        raise CorruptRecord(where, f"it is the record of row {_shown(own)}")
    return record


def place(table: Table, row: Row) -> str:
    """Return where a record is, for an error."""
    return f"table {table.name}, row {_shown(row)}"


def _shown(row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
