"""Messages of clients in words: a report says which one was cut, without passwords and values."""

from __future__ import annotations

import struct

import pytest

from pytest_wfstate.faults.servers.messages import MessageNames


def redis(*commands: str) -> bytes:
    """Encode commands as a client of Redis sends them."""
    return b"".join(
        b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        for parts in (command.encode().split(b" ") for command in commands)
    )


def postgres(kind: bytes, body: bytes) -> bytes:
    """Encode a message as a client of PostgreSQL sends it."""
    return kind + struct.pack("!i", len(body) + 4) + body


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (redis("hset home:paused:claims a {secret}"), "HSET home:paused:claims a"),
        (redis(f"HSET {'x' * 40}:claims a value"), f"HSET ...{'x' * 18}:claims a"),
        (redis("SET home:a {secret}"), "SET home:a"),
        (redis("EVALSHA 0123 2 home:paused home:claims secret"), "EVALSHA home:paused"),
        (redis("AUTH user secret"), "AUTH"),
        (redis("HELLO 3 AUTH user secret"), "HELLO"),
        (redis("MULTI", "SET a 1", "SET a 1", "EXEC"), "MULTI, SET a, EXEC"),
        (redis("SET a 1", "SET b 1", "SET c 1", "SET d 1"), "SET a, SET b, SET c, ..."),
        (redis("SET home:a secret")[:-10], "SET home:a"),
        (redis("SET home:a secret")[:6], ""),
        (postgres(b"Q", b"INSERT INTO paused_runs (id, record) VALUES ('a', 'secret')\0"), "INSERT INTO paused_runs"),
        (postgres(b"Q", b"update wf.runs set context = 'secret'\0"), "UPDATE wf.runs"),
        (postgres(b"Q", b"SELECT record, at FROM runs WHERE id = 'secret'\0"), "SELECT ... FROM runs"),
        (postgres(b"Q", b"DELETE FROM runs WHERE id = 'secret'\0"), "DELETE FROM runs"),
        (postgres(b"Q", b"BEGIN ISOLATION LEVEL SERIALIZABLE\0"), "BEGIN"),
        (postgres(b"Q", b"SELECT 'secret'\0"), "SELECT"),
        (postgres(b"p", b"SCRAM secret\0"), ""),
        (b"\x00\x00\x00\x08secret", ""),
        (b"GET / HTTP/1.1\r\nAuthorization: secret\r\n", ""),
        (b"\xff" * 100, ""),
    ],
)
def test_a_message_is_named_without_values(data: bytes, name: str) -> None:
    assert MessageNames().name(data) == name


def test_a_prepared_statement_is_named_when_it_is_used() -> None:
    names = MessageNames()
    names.name(postgres(b"P", b"one\0DELETE FROM runs WHERE id = $1\0\0\0"))
    bound = postgres(b"B", b"\0one\0\0\0") + postgres(b"E", b"\0\0\0\0\0") + postgres(b"S", b"")
    assert names.name(bound) == "DELETE FROM runs"
    assert MessageNames().name(bound) == ""
