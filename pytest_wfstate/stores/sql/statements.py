"""Statements: SQLAlchemy builds and compiles them, and the database's own driver executes them.

What SQLAlchemy does around each statement takes several times as long as SQLite takes to execute one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
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

    __slots__ = ("_built", "_compiled", "_writer")

    def __init__(self, built: ClauseElement, writer: Writer) -> None:
        self._built = built
        self._writer = writer
        self._compiled: tuple[str, dict[str, Any], list[str]] | None = None

    def named(self, values: Values) -> tuple[str, dict[str, Any]]:
        """Return its text, and all the values that go with it, by name."""
        text, constants, _ = self._compiled or self._compile(values)
        return text, {**constants, **values}

    def numbered(self, values: Values) -> tuple[str, list[Any]]:
        """Return its text, and all the values that go with it, in the order of their places."""
        text, constants, names = self._compiled or self._compile(values)
        return text, [values[name] if name in values else constants[name] for name in names]

    def _compile(self, values: Values) -> tuple[str, dict[str, Any], list[str]]:
        compiled: Any = self._built.compile(dialect=self._writer, column_keys=list(values))
        constants = {name: value for name, value in compiled.params.items() if name not in values}
        self._compiled = str(compiled), constants, list(compiled.positiontup or ())
        return self._compiled


Change = tuple[Statement, Values | list[Values]]
"""A statement, and the values to execute it with, or a list of those of every row that it inserts."""


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

    Its methods raise DBAPIError as SQLAlchemy does, with the driver's error and whether the connection is lost, but
    without the values of the statement: a record may hold secrets.
    """

    __slots__ = ("_engine", "driver", "error", "pooled")

    def __init__(self, engine: Engine, pooled: PoolProxiedConnection) -> None:
        self._engine = engine
        self.error = engine.dialect.loaded_dbapi.Error
        self.pooled = pooled
        self.driver: Any = pooled.driver_connection

    def run(self, statements: Sequence[Change | str]) -> list[StatementResult]:
        """Execute statements one after the other, up to the first that fails. Those without values are texts."""
        raise NotImplementedError

    def execute(self, statement: Statement, values: Values) -> StatementResult:
        """Execute one statement."""
        return self.run([(statement, values)])[0]

    def execute_text(self, text: str) -> StatementResult:
        """Execute one statement without values."""
        return self.run([text])[0]

    def discard(self) -> None:
        """Close the connection, whatever it is doing. An open transaction is rolled back."""
        if self.pooled.is_valid:
            with contextlib.suppress(self.error):
                self.driver.close()
            self.pooled.invalidate()

    def wrapped(self, text: str | None, error: Exception) -> DBAPIError:
        """Return a driver's error as SQLAlchemy would raise it."""
        wrapped = DBAPIError.instance(
            text,
            None,
            error,
            self.error,
            hide_parameters=True,
            connection_invalidated=self._engine.dialect.is_disconnect(error, self.driver, None),  # type: ignore[arg-type]
            dialect=self._engine.dialect,
        )
        assert isinstance(wrapped, DBAPIError)
        return wrapped
