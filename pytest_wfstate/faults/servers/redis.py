"""Redis, as a server of the tests' own."""

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
"""What each kind of server has in its configuration."""


def check_kind(kind: Kind) -> None:
    """Refuse a kind that is unknown.

    Raises:
        ValueError: it is.
    """
    if kind not in KINDS:
        raise ValueError(f"a Redis server of kind {kind!r} is unknown. Choose among: {', '.join(KINDS)}.")


class RedisServer(Server):
    """Redis. A durable one has every change on disk before it answers, a volatile one keeps nothing there."""

    title = "Redis"
    scheme = "redis"
    database = "0"

    def __init__(self, kind: Kind = "durable", place: ProgramFolder | None = None, *, on_disk: bool = False) -> None:
        check_kind(kind)
        self._program = (place or find_redis()).programs / "redis-server"
        self._kind = kind
        super().__init__(on_disk=on_disk)

    def _prepare(self) -> None:
        # In a file, because anybody may read the command of a process.
        (self._folder / "redis.conf").write_text(
            f'bind {HOST}\nrequirepass {self._password}\ndir "{self._folder}"\nsave ""\n{KINDS[self._kind]}\n'
        )

    def _command(self) -> Sequence[str]:
        return [str(self._program), str(self._folder / "redis.conf"), "--port", str(self._port)]

    def _is_ready(self, process: Process) -> bool:  # noqa: ARG002 - the port is all there is to ask
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), timeout=1) as one:
            one.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
            return b"+PONG" in _answers(one, 2)
        return False


def _answers(one: socket.socket, lines: int) -> bytes:
    """Read so many lines: the answer to the second call is another one while what was kept is being loaded."""
    answered = b""
    while answered.count(b"\r\n") < lines and (more := one.recv(1024)):
        answered += more
    return answered
