"""Rows: the statements that every store makes of a table whose rows are found by the columns of its primary key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Delete, Select, Table, and_, bindparam, delete, func, select

Row = Mapping[str, Any]
"""The columns that a row is found by, and their values."""


def put(insert: Any, *replaced: str) -> Any:
    """Insert a row, or replace these columns of the one that is there."""
    table = insert.table
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: insert.excluded[name] for name in replaced}
    )


def get(table: Table, *columns: str, by: tuple[str, ...] = ()) -> Select[Any]:
    """Give these columns of a row, or of all rows that have the same values in the columns `by`."""
    return select(*(table.c[name] for name in columns)).where(found(table, by))


def drop(table: Table, by: tuple[str, ...] = ()) -> Delete:
    """Delete a row, or all rows that have the same values in the columns `by`."""
    return delete(table).where(found(table, by))


def found(table: Table, by: tuple[str, ...] = ()) -> ColumnElement[bool]:
    """Ask for the row of a key, or for rows by some columns, whose values `of` gives."""
    names = by or tuple(column.name for column in table.primary_key)
    return and_(*(table.c[name] == bindparam(f"of_{name}") for name in names))


def of(row: Row) -> dict[str, Any]:
    """Give a row as parameters of what asks for it: those with the names of columns would be new values of them."""
    return {f"of_{name}": value for name, value in row.items()}


def next_position(table: Table, column: str) -> Any:
    """Give the position after all rows that have the same value in `column`. An index finds it."""
    last = func.max(table.c.position, type_=BigInteger)
    return select(func.coalesce(last, -1) + 1).where(found(table, (column,))).scalar_subquery()
