"""The schema of a store: its tables, made when they are first needed, and the version that says how to read them."""

from __future__ import annotations

import hashlib
import re

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
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
from sqlalchemy.schema import SchemaItem

from pytest_wfstate.errors import NewerSchema

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

    def __init__(self, contract: str, prefix: str) -> None:
        self._contract = contract
        self._prefix = prefix
        self._tables = MetaData()
        self._versions = self.table("schema", Column("contract", Text, primary_key=True), Column("version", Integer))
        self._get_version = select(self._versions.c.version).where(self._versions.c.contract == contract)

    def table(self, name: str, *parts: SchemaItem) -> Table:
        """Add a table. SQLite keeps rows in the order of their keys, and no second time to be found by them."""
        return Table(f"{self._prefix}_{name}", self._tables, *parts, sqlite_with_rowid=False)

    def is_made(self, connection: Connection, where: str) -> bool:
        """Tell whether the tables are there.

        Raises:
            NewerSchema: a later release made them.

        """
        version = self._version(connection)
        if version is not None and version > VERSION:
            raise NewerSchema(
                f"the {self._contract} tables {self._prefix}_* in {where} are of version {version}, and this release "
                f"of pytest-wfstate reads version {VERSION}. Nothing was changed. "
                "Upgrade it (pip install -U pytest-wfstate), or give another prefix."
            )
        return version is not None

    def make(self, connection: Connection) -> None:
        """Make the tables, unless somebody else was faster."""
        if self._version(connection) is None:
            self._tables.create_all(connection)
            connection.execute(insert(self._versions), {"contract": self._contract, "version": VERSION})

    def drop(self, connection: Connection) -> None:
        """Drop the tables, and the one of versions with the last of them."""
        if self._version(connection) is not None:
            own = [table for table in self._tables.tables.values() if table is not self._versions]
            self._tables.drop_all(connection, own)
            connection.execute(delete(self._versions).where(self._versions.c.contract == self._contract))
            if connection.execute(select(self._versions.c.contract)).first() is None:
                self._versions.drop(connection)

    def _version(self, connection: Connection) -> int | None:
        if not connection.dialect.has_table(connection, self._versions.name):
            return None
        return connection.execute(self._get_version).scalar()


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
