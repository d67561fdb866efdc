"""The schema of a store: its tables, made when they are first needed, and the version that says how to read them."""

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
"""Goes up when tables change in a way that an older release would misread."""

Key = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is found by its bytes, whatever language the database sorts in."""


class _Undecoded(TypeDecorator[str]):
    """Text of SQLite that is read as bytes: what is damaged may be no text, and the driver would not say where."""

    impl = Text
    cache_ok = True

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        return type_coerce(cast(column, LargeBinary), self)


Json = Text().with_variant(_Undecoded(), "sqlite")
"""A record, as the JSON text that it gives. PostgreSQL's own type for it cannot hold all of JSON, \\u0000 for one."""

_LONGEST_KEY = 255  # bytes: PostgreSQL indexes 2,704 a row at most, and an id may have 4,096
_DIGEST = "sha256:"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def key(one: str) -> str:
    """Give what an id is found by: itself, or a digest if it is too long for an index, or no text to PostgreSQL."""
    data = one.encode()
    if len(data) <= _LONGEST_KEY and "\0" not in one and not one.startswith(_DIGEST):
        return one
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
        """Add a table. SQLite keeps rows in the order of their keys, and no second time to be found by them."""
        return Table(f"{self._prefix}_{name}", self._tables, *parts, sqlite_with_rowid=False)

    def is_made(self, transaction: Transaction, where: str) -> bool:
        """Tell whether the tables are there.

        Raises:
            NewerSchema: a later release made them.

        """
        version = self._version(transaction)
        if version is not None and version > VERSION:
            raise NewerSchema(
                f"the {self._contract} tables {self._prefix}_* in {where} are of version {version}, and this release "
                f"of pytest-wfstate reads version {VERSION}. Nothing was changed. "
                "Upgrade it (pip install -U pytest-wfstate), or give another prefix."
            )
        return version is not None

    def make(self, transaction: Transaction, where: str) -> None:
        """Make the tables, unless somebody else was faster.

        Raises:
            NewerSchema: that was a later release.

        """
        if not self.is_made(transaction, where):
            tables = self._tables.tables.values()
            self._say(transaction, [CreateTable(table, if_not_exists=True) for table in tables])
            indexes = [index for table in tables for index in table.indexes]
            self._say(transaction, [CreateIndex(index, if_not_exists=True) for index in indexes])
            transaction.execute(self._put_version, {})

    def drop(self, transaction: Transaction, where: str) -> None:
        """Drop the tables, and the one of versions with the last of them.

        Raises:
            NewerSchema: a later release made them. It may have others, that would be left.

        """
        if self.is_made(transaction, where):
            own = [table for table in self._tables.tables.values() if table is not self._versions]
            self._say(transaction, [DropTable(table, if_exists=True) for table in own])
            transaction.execute(self._drop_version, {})
            if not transaction.execute(self._all_versions, {}).rows:
                self._say(transaction, [DropTable(self._versions)])

    def _version(self, transaction: Transaction) -> int | None:
        if not transaction.execute(self._dialect.has_table, {"name": self._versions.name}).rows:
            return None
        found: int | None = transaction.execute(self._get_version, {}).value
        return found

    def _statement(self, built: ClauseElement) -> Statement:
        return Statement(built, self._dialect.writer)

    def _say(self, transaction: Transaction, changes: Sequence[DDLElement]) -> None:
        if changes:
            self._dialect.say_all(transaction, [str(one.compile(dialect=self._dialect.writer)) for one in changes])


def check_prefix(prefix: object) -> str:
    """Give `prefix` back if names of tables can begin with it.

    Raises:
        ValueError: they cannot.

    """
    if isinstance(prefix, str) and _PREFIX.fullmatch(prefix):
        return prefix
    raise ValueError(
        f"the prefix is {prefix!r}. It begins the names of tables: 1 to 40 lower-case letters, digits and underscores, "
        "no digit first. Give one such as 'wfstate'."
    )
