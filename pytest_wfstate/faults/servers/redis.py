"""A Redis server that the tests own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Literal

from pytest_wfstate.faults.servers.base import HOST, Server
from pytest_wfstate.faults.servers.places import ProgramFolder, find_redis
from pytest_wfstate.faults.servers.process import Process

Kind = Literal["durable", "volatile"]

KINDS: dict[Kind, str] = {"durable": "appendonly yes\nappendfsync always", "volatile": "appendonly no"}
"""The configuration of each kind of server."""


def check_kind(kind: Kind) -> None:
    """Raise `ValueError` if there is no such kind."""
    if kind not in KINDS:
        raise ValueError(f"There is no kind {kind!r} of Redis. Choose from: {', '.join(KINDS)}.")


class RedisServer(Server):
    """Redis. A durable one writes every change to disk before it answers; a volatile one keeps nothing on disk."""

    title = "Redis"
    scheme = "redis"
    database = "0"

    def __init__(self, kind: Kind = "durable", place: ProgramFolder | None = None, *, on_disk: bool = False) -> None:
        check_kind(kind)
        self._program = (place or find_redis()).programs / "redis-server"
        self._kind = kind
        super().__init__(on_disk=on_disk)

    def _prepare(self) -> None:
        # In a file: every user can read the command line of a process.
        (self._folder / "redis.conf").write_text(
            f'bind {HOST}\nrequirepass {self._password}\ndir "{self._folder}"\nsave ""\n{KINDS[self._kind]}\n'
        )

    def _command(self) -> Sequence[str]:
        return [str(self._program), str(self._folder / "redis.conf"), "--port", str(self._port)]

    def _is_ready(self, process: Process) -> bool:  # noqa: ARG002 - only the port is asked
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), timeout=1) as client:
            client.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
            return b"+PONG" in _answers(client, 2)
        return False


def _answers(client: socket.socket, lines: int) -> bytes:
    """Read a number of lines. While Redis is still loading its data, the second is not +PONG but an error."""
    received = b""
    while received.count(b"\r\n") < lines and (more := client.recv(1024)):
        received += more
    return received
