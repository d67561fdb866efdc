"""The schema of a store: its tables, created on first use, and the version that says how to read them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from sqlalchemy import (
    ClauseElement,
    Column,
    ColumnElement,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    cast,
    delete,
    insert,
    select,
    type_coerce,
)
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement, DropTable, SchemaItem

from pytest_wfstate.errors import NewerSchema
from pytest_wfstate.stores.sql.dialects import Dialect
from pytest_wfstate.stores.sql.statements import Statement, Transaction

VERSION = 1
"""Incremented when tables change in a way that an older release would misread."""

Key = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared by its bytes, whatever the collation of the database."""


class _Undecoded(TypeDecorator[str]):
    """SQLite text that is read as bytes: damaged data may not be text, and the driver would not say where it is."""

    impl = Text
    cache_ok = True

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        return type_coerce(cast(column, LargeBinary), self)


Json = Text().with_variant(_Undecoded(), "sqlite")
"""A record as JSON text. PostgreSQL's JSON types cannot hold all of JSON, for instance \\u0000."""

_LONGEST_KEY = 255  # bytes: PostgreSQL indexes at most 2,704 per row, and an id may have 4,096
_DIGEST = "sha256:"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def key(id_: str) -> str:
    """Return the key of an id: the id itself, or a digest if it is too long for an index or PostgreSQL refuses it."""
    data = id_.encode()
    if len(data) <= _LONGEST_KEY and "\0" not in id_ and not id_.startswith(_DIGEST):
        return id_
    return _DIGEST + hashlib.sha256(data).hexdigest()


class Schema:
    """The tables of one contract, whose names begin with `prefix`."""

    def __init__(self, contract: str, prefix: str, dialect: type[Dialect]) -> None:
        self._contract = contract
        self._prefix = prefix
        self._dialect = dialect
        self._tables = MetaData()
        self._versions = self.table("schema", Column("contract", Text, primary_key=True), Column("version", Integer))
        own = self._versions.c.contract == contract
        self._get_version = self._statement(select(self._versions.c.version).where(own))
        self._put_version = self._statement(insert(self._versions).values(contract=contract, version=VERSION))
        self._drop_version = self._statement(delete(self._versions).where(own))
        self._all_versions = self._statement(select(self._versions.c.version))

    def table(self, name: str, *parts: SchemaItem) -> Table:
        """Add a table. SQLite stores its rows in key order, without a separate index."""
        return Table(f"{self._prefix}_{name}", self._tables, *parts, sqlite_with_rowid=False)

    def is_made(self, transaction: Transaction, where: str) -> bool:
        """Whether the tables exist.

        Raises:
            NewerSchema: a later release created them.

        """
        version = self._version(transaction)
        if version is not None and version > VERSION:
            raise NewerSchema(
                f"the {self._contract} tables {self._prefix}_* in {where} have version {version}, but this release of "
                f"pytest-wfstate reads version {VERSION}. Nothing was changed. "
                "Upgrade it (pip install -U pytest-wfstate), or use another prefix."
            )
        return version is not None

    def make(self, transaction: Transaction, where: str) -> None:
        """Create the tables, unless another process has done so meanwhile.

        Raises:
            NewerSchema: a later release created them.

        """
        if not self.is_made(transaction, where):
            tables = self._tables.tables.values()
            self._execute(transaction, [CreateTable(table, if_not_exists=True) for table in tables])
            indexes = [index for table in tables for index in table.indexes]
            self._execute(transaction, [CreateIndex(index, if_not_exists=True) for index in indexes])
            transaction.execute(self._put_version, {})

    def drop(self, transaction: Transaction, where: str) -> None:
        """Drop the tables; the last contract to be dropped takes the table of versions with it.

        Raises:
            NewerSchema: a later release created them. It may have further tables, which would remain.

        """
        if self.is_made(transaction, where):
            own = [table for table in self._tables.tables.values() if table is not self._versions]
            self._execute(transaction, [DropTable(table, if_exists=True) for table in own])
            transaction.execute(self._drop_version, {})
            if not transaction.execute(self._all_versions, {}).rows:
                self._execute(transaction, [DropTable(self._versions)])

    def _version(self, transaction: Transaction) -> int | None:
        if not transaction.execute(self._dialect.has_table, {"name": self._versions.name}).rows:
            return None
        version: int | None = transaction.execute(self._get_version, {}).value
        return version

    def _statement(self, built: ClauseElement) -> Statement:
        return Statement(built, self._dialect.writer)

    def _execute(self, transaction: Transaction, changes: Sequence[DDLElement]) -> None:
        if changes:
            texts = [str(change.compile(dialect=self._dialect.writer)) for change in changes]
            transaction.run(texts)


def check_prefix(prefix: object) -> str:
    """Return `prefix` if names of tables can begin with it.

    Raises:
        ValueError: they cannot.

    """
    if isinstance(prefix, str) and _PREFIX.fullmatch(prefix):
        return prefix
    raise ValueError(
        f"{prefix!r} is not a valid prefix. The names of tables begin with it: 1 to 40 lower-case letters, digits and "
        "underscores, not starting with a digit. Use one such as 'wfstate'."
    )
