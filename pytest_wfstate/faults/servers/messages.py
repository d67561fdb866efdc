"""What a client asks a server for, in words: the command of Redis and its key, or the statement of PostgreSQL.

A report shows it, so it holds no password, and nothing of a record but the id that it is kept under.
"""

from __future__ import annotations

import re
import struct

_MOST = 3  # commands of one message
_WIDTH = 28  # of a key
_SILENT = {
    "AUTH",
    "HELLO",
    "ACL",
    "CONFIG",
    "CLIENT",
    "PING",
    "SELECT",
    "MULTI",
    "EXEC",
    "DISCARD",
    "UNWATCH",
    "SCRIPT",
}
"""Commands of Redis whose arguments are no keys, but may be secrets."""
_WITH_FIELD = {"HSET", "HSETNX", "HGET", "HDEL", "HEXISTS"}
_SCRIPTS = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL"}
_STATEMENT = re.compile(
    r"\s*(?:WITH\b.*?\b(?=INSERT|UPDATE|DELETE|SELECT))?"
    r"(INSERT\s+INTO|UPDATE|DELETE\s+FROM|SELECT\b[^;]*?\bFROM|CREATE\s+\w+(?:\s+IF\s+NOT\s+EXISTS)?|\w+)"
    r"(?:\s+([\w.\"]+))?",
    re.IGNORECASE | re.DOTALL,
)
_WITHOUT_TABLE = {"BEGIN", "COMMIT", "ROLLBACK", "SELECT", "SET", "SHOW", "START"}


class MessageNames:
    """Names the messages of one connection. It remembers the statements that the client has prepared."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str] = {}

    def name(self, data: bytes) -> str:
        """Return what a message asks for, as far as its first packet shows it, or ""."""
        try:
            names = _redis(data) if data[:1] == b"*" else self._postgres(data)
        except (IndexError, ValueError, struct.error):
            return ""  # the packet ends within it, or it is of another protocol
        shown = list(dict.fromkeys(filter(None, names)))
        return ", ".join([*shown[:_MOST], *(["..."] if len(shown) > _MOST else [])])

    def _postgres(self, data: bytes) -> list[str]:
        names, place = [], 0
        while place < len(data):
            kind, body = data[place : place + 1], data[place + 5 :]
            (size,) = struct.unpack_from("!i", data, place + 1)
            if kind == b"Q":
                names.append(_statement(body[: size - 4]))
            elif kind == b"P":
                name, query = body.split(b"\0", 2)[:2]
                self._prepared[name] = _statement(query)
            elif kind == b"B":
                names.append(self._prepared.get(body.split(b"\0", 2)[1], ""))
            elif kind not in b"DESHCX" or size < 4:
                return names  # it logs in, or is of another protocol
            place += 1 + size
        return names


def _statement(query: bytes) -> str:
    """Return what a statement does, and to which table. Its values are left out."""
    found = _STATEMENT.match(query.rstrip(b"\0").decode(errors="replace"))
    if not found:
        return ""
    verb, table = " ".join(found[1].split()), found[2]
    if re.match(r"SELECT\b.*\bFROM$", verb, re.IGNORECASE):
        verb = "SELECT ... FROM"
    return verb.upper() if table is None or verb.upper() in _WITHOUT_TABLE else f"{verb.upper()} {_end(table)}"


def _redis(data: bytes) -> list[str]:
    names, place = [], 0
    while data[place : place + 1] == b"*":
        parts, place = _command(data, place)
        verb, *args = [part.decode(errors="replace") for part in parts]
        verb = verb.upper()
        keys = [] if verb in _SILENT else args[2:3] if verb in _SCRIPTS else args[: 2 if verb in _WITH_FIELD else 1]
        names.append(" ".join([verb, *map(_end, keys)]))
    return names


def _command(data: bytes, place: int) -> tuple[list[bytes], int]:
    """Return the parts of the command at a place, as far as they are there, and where the next one begins."""
    end = data.index(b"\r\n", place)
    number, place, parts = int(data[place + 1 : end]), end + 2, []
    for _ in range(number):
        end = data.find(b"\r\n", place)
        if end < 0 or data[place : place + 1] != b"$":
            break
        size = int(data[place + 1 : end])
        parts.append(data[end + 2 : end + 2 + size])
        place = end + 2 + size + 2
    return parts, place


def _end(text: str) -> str:
    """Return the end of a name, which says more than its beginning: `...:claims`."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _WIDTH else f"...{text[3 - _WIDTH :]}"
