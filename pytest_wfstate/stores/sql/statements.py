"""Statements: SQLAlchemy builds and compiles them, and the database's own driver executes them.

What SQLAlchemy does around each statement takes several times as long as SQLite takes to execute one.
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
    """A statement that is executed many times, with other values of the same names.

    It is compiled on first use: compiling takes longer than everything else a new handle does.
    """

    __slots__ = ("_built", "_constants", "_text", "_writer")

    def __init__(self, built: ClauseElement, writer: Writer) -> None:
        self._built = built
        self._writer = writer
        self._text: str | None = None
        self._constants: dict[str, Any] = {}

    def written(self, values: Values) -> tuple[str, dict[str, Any]]:
        """Return its text, and all the values that go with it."""
        if self._text is None:
            compiled = self._built.compile(dialect=self._writer, column_keys=list(values))
            self._constants = {name: value for name, value in compiled.params.items() if name not in values}
            self._text = str(compiled)
        return self._text, {**self._constants, **values}


Change = tuple[Statement, Values]
"""A statement, and the values to execute it with."""


class StatementResult(NamedTuple):
    """The result of a statement."""

    rows: list[tuple[Any, ...]]
    changed: int
    """How many rows it changed."""

    @property
    def value(self) -> Any:
        """The first value of the first row, or None if there is no row."""
        return self.rows[0][0] if self.rows else None


class Transaction:
    """A connection, for as long as one call needs it.

    Its methods raise DBAPIError as SQLAlchemy does, with the driver's error and whether the connection is lost.
    """

    __slots__ = ("_engine", "driver", "error", "pooled")

    def __init__(self, engine: Engine, pooled: PoolProxiedConnection) -> None:
        self._engine = engine
        self.error = engine.dialect.loaded_dbapi.Error
        self.pooled = pooled
        self.driver: Any = pooled.driver_connection

    def execute(self, statement: Statement, values: Values) -> StatementResult:
        """Execute a statement."""
        return self._execute(*statement.written(values))

    def execute_all(self, changes: Sequence[Change]) -> None:
        """Execute statements whose results are not needed: in PostgreSQL with a single message."""
        pipeline = getattr(self.driver, "pipeline", nullcontext)
        try:
            with pipeline():
                for statement, values in changes:
                    self.driver.execute(*statement.written(values))
        except self.error as error:
            texts = "; ".join(statement.written(values)[0] for statement, values in changes)
            raise self._wrapped(texts, None, error) from error

    def execute_text(self, text: str) -> StatementResult:
        """Execute a statement without values, or in PostgreSQL several of them at once."""
        return self._execute(text)

    def _execute(self, text: str, *values: dict[str, Any]) -> StatementResult:
        try:
            cursor = self.driver.execute(text, *values)
            return StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)
        except self.error as error:
            raise self._wrapped(text, values[0] if values else None, error) from error

    def _wrapped(self, text: str, values: Any, error: Exception) -> DBAPIError:
        wrapped = DBAPIError.instance(
            text,
            values,
            error,
            self.error,
            hide_parameters=self._engine.hide_parameters,
            connection_invalidated=self._engine.dialect.is_disconnect(error, self.driver, None),  # type: ignore[arg-type]
            dialect=self._engine.dialect,
        )
        assert isinstance(wrapped, DBAPIError)
        return wrapped
