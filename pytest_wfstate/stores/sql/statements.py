"""Statements: SQLAlchemy builds them and says how to write them, and the database's own driver makes them.

What SQLAlchemy does around each statement takes several times as long as SQLite takes to make one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Engine
from sqlalchemy.engine import Dialect as Writer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

Values = Mapping[str, Any]
"""The values of a statement, by the names of its parameters."""


class Statement:
    """A statement that is made again and again, with other values of the same names.

    Its text is written when it is first made: it takes longer than all else that a new handle does.
    """

    __slots__ = ("_built", "_constants", "_text", "_writer")

    def __init__(self, built: ClauseElement, writer: Writer) -> None:
        self._built = built
        self._writer = writer
        self._text: str | None = None
        self._constants: dict[str, Any] = {}

    def written(self, values: Values) -> tuple[str, dict[str, Any]]:
        """Give its text, and all the values that go with it."""
        if self._text is None:
            written = self._built.compile(dialect=self._writer, column_keys=list(values))
            self._constants = {name: value for name, value in written.params.items() if name not in values}
            self._text = str(written)
        return self._text, {**self._constants, **values}


Change = tuple[Statement, Values]
"""A statement, and the values that it is made with."""


class StatementResult(NamedTuple):
    """What came of a statement."""

    rows: list[tuple[Any, ...]]
    changed: int
    """How many rows it has changed."""

    @property
    def value(self) -> Any:
        """What the first row begins with, or None if there is no row."""
        return self.rows[0][0] if self.rows else None


class Transaction:
    """A connection, for as long as one call needs it.

    Its methods raise DBAPIError, as SQLAlchemy does: what the driver said, and whether the connection is lost.
    """

    __slots__ = ("_engine", "driver", "error", "pooled")

    def __init__(self, engine: Engine, pooled: PoolProxiedConnection) -> None:
        self._engine = engine
        self.error = engine.dialect.loaded_dbapi.Error
        self.pooled = pooled
        self.driver: Any = pooled.driver_connection

    def execute(self, statement: Statement, values: Values) -> StatementResult:
        """Make a statement."""
        return self._made(*statement.written(values))

    def execute_all(self, some: Sequence[Change]) -> None:
        """Make statements whose results nobody needs: in PostgreSQL all of them with one message."""
        together = getattr(self.driver, "pipeline", nullcontext)
        try:
            with together():
                for statement, values in some:
                    self.driver.execute(*statement.written(values))
        except self.error as error:
            texts = "; ".join(statement.written(values)[0] for statement, values in some)
            raise self._told(texts, None, error) from error

    def say(self, text: str) -> StatementResult:
        """Make a statement that has no values, or for PostgreSQL several of them at once."""
        return self._made(text)

    def _made(self, text: str, *values: dict[str, Any]) -> StatementResult:
        try:
            cursor = self.driver.execute(text, *values)
            return StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)
        except self.error as error:
            raise self._told(text, values[0] if values else None, error) from error

    def _told(self, text: str, values: Any, error: Exception) -> DBAPIError:
        told = DBAPIError.instance(
            text,
            values,
            error,
            self.error,
            hide_parameters=self._engine.hide_parameters,
            connection_invalidated=self._engine.dialect.is_disconnect(error, self.driver, None),  # type: ignore[arg-type]
            dialect=self._engine.dialect,
        )
        assert isinstance(told, DBAPIError)
        return told
