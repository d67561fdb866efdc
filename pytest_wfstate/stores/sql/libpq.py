"""Messages to PostgreSQL, on libpq itself: any number of statements are one message, and have one answer.

So a transaction never waits for its client: PostgreSQL has all of it before it begins. A client that parsed a record in
the middle of a transaction, or whose threads wait for each other's parsing, would keep its locks meanwhile, until
`idle_in_transaction_session_timeout` ends it. psycopg's own pipelines do the same in three times the time. Statements
have no names: behind a pooler that shares sessions, a name may mean another client's statement.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from pytest_wfstate.stores.sql.statements import StatementResult

Message = Sequence[tuple[str, Sequence[Any]]]
"""Statements, each with its values."""

_FINE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_INTEGERS = (20, 21, 23)  # the types int8, int2 and int4


class StatementFailed(Exception):
    """One statement of a message failed, and none after it was executed."""

    def __init__(self, number: int, error: psycopg.Error) -> None:
        super().__init__(number, error)
        self.number = number
        self.error = error


def exchange(driver: psycopg.Connection[Any], message: Message) -> list[StatementResult]:
    """Send statements as one message, and return their results.

    Raises:
        StatementFailed: one failed, or the connection was lost before it was answered.

    """
    connection, encoding = driver.pgconn, driver.info.encoding
    results: list[StatementResult] = []
    try:
        connection.enter_pipeline_mode()
        for text, values in message:
            connection.send_query_params(text.encode(encoding), [_sent(value, encoding) for value in values])
        connection.pipeline_sync()
        _flush(connection)
        failure = None
        for result in _results(connection):
            if result.status in _FINE:
                results.append(_received(result, encoding))
            elif failure is None:
                failure = _error(result, encoding)
        connection.exit_pipeline_mode()
    except psycopg.Error as error:
        raise StatementFailed(len(results), error) from error
    if failure is not None:
        raise StatementFailed(len(results), failure)
    return results


def is_alive(driver: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection is still open, as far as this side knows: the server may have said goodbye."""
    try:
        while _wait(driver.pgconn, timeout=0):
            driver.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return driver.pgconn.status == pq.ConnStatus.OK


def _flush(connection: pq.abc.PGconn) -> None:
    while connection.flush():
        if _wait(connection, writes=True):
            connection.consume_input()  # the server sends answers, and reads no further before they are received


def _results(connection: pq.abc.PGconn) -> Iterator[pq.abc.PGresult]:
    """Yield the result of each statement."""
    while True:
        while connection.is_busy():
            _wait(connection)
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            if connection.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError(connection.get_error_message())
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return
        else:
            yield result


def _wait(connection: pq.abc.PGconn, *, writes: bool = False, timeout: float | None = None) -> bool:
    """Wait until the server can be read from, or also until it can be written to. Return whether it can be read."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([connection.socket], [connection.socket] if writes else [], [], timeout)[0])
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN | (select.POLLOUT if writes else 0))
    ready = poll.poll(timeout)
    return any(event & ~select.POLLOUT for _, event in ready)


def _sent(value: Any, encoding: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, list):
        return f"{{{','.join(_element(element) for element in value)}}}".encode(encoding)
    return str(value).encode(encoding)


def _element(value: Any) -> str:
    """Return an element of an array, as PostgreSQL reads it."""
    if not isinstance(value, str):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _received(result: pq.abc.PGresult, encoding: str) -> StatementResult:
    columns = [(column, result.ftype(column) in _INTEGERS) for column in range(result.nfields)]
    rows = [
        tuple(_read(result.get_value(row, column), is_integer, encoding) for column, is_integer in columns)
        for row in range(result.ntuples)
    ]
    return StatementResult(rows, result.command_tuples or 0)


def _read(value: bytes | None, is_integer: bool, encoding: str) -> Any:
    if value is None:
        return None
    return int(value) if is_integer else value.decode(encoding)


def _error(result: pq.abc.PGresult, encoding: str) -> psycopg.Error:
    """Return a server's error without details and context, which may quote the row."""
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message().encode()
    try:
        kind: type[psycopg.Error] = errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError
    return kind(message.decode(encoding, "replace"))
