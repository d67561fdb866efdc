"""Rows: the statements that every store builds for a table whose rows are looked up by primary key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Delete, Select, Table, and_, bindparam, delete, func, select

Row = Mapping[str, Any]
"""The columns that a row is looked up by, and their values."""


def put(insert: Any, *replaced: str) -> Any:
    """Insert a row, or replace these columns of the existing one."""
    table = insert.table
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: insert.excluded[name] for name in replaced}
    )


def get(table: Table, *columns: str, by: tuple[str, ...] = ()) -> Select[Any]:
    """Select these columns of a row, or of all rows with the same values in the columns `by`."""
    return select(*(table.c[name] for name in columns)).where(matches(table, by))


def drop(table: Table, by: tuple[str, ...] = ()) -> Delete:
    """Delete a row, or all rows with the same values in the columns `by`."""
    return delete(table).where(matches(table, by))


def matches(table: Table, by: tuple[str, ...] = ()) -> ColumnElement[bool]:
    """Return the condition for the row of a primary key, or for rows by other columns; `of` makes its parameters."""
    names = by or tuple(column.name for column in table.primary_key)
    return and_(*(table.c[name] == bindparam(f"of_{name}") for name in names))


def of(row: Row) -> dict[str, Any]:
    """Return a row as parameters of `matches`: parameters named like columns would be new values."""
    return {f"of_{name}": value for name, value in row.items()}


def next_position(table: Table, column: str) -> Any:
    """Return the position after all rows with the same value in `column`. An index finds it."""
    last = func.max(table.c.position, type_=BigInteger)
    return select(func.coalesce(last, -1) + 1).where(matches(table, (column,))).scalar_subquery()


def insert_if(insert: Any, condition: ColumnElement[bool], **values: Any) -> Any:
    """Insert a row if a condition holds: each column has a value here, or a parameter of its name."""
    columns = list(insert.table.columns)
    row = [values.get(column.name, bindparam(column.name, type_=column.type)) for column in columns]
    return insert.from_select(columns, select(*row).where(condition))
