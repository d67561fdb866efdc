"""A stand-in for pgbouncer in transaction mode: it lends its few server sessions to clients, a transaction at a time.

Like pgbouncer before 1.21, it carries messages as they are: what a client has named in one session is not there in the
next, and another client may have given the name to something else.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_SETTINGS = ["server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone", "integer_datetimes"]
_SETTINGS += ["standard_conforming_strings"]
_ENDED = (OSError, EOFError)


class Pooler:
    """A pooler in front of a server. `session` is the number of the session that the next transaction gets."""

    def __init__(self, url: str, sessions: int) -> None:
        self.session = 0
        self._sessions = [_Session(url) for _ in range(sessions)]
        self._listener = socket.create_server(("127.0.0.1", 0))
        parts = urlsplit(url)
        place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = parts._replace(netloc=place).geturl()
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for session in self._sessions:
            session.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each answer waits for an ACK
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=[client], daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(*_ENDED):
            if not _greet(client, self._sessions[0]):
                return
            while True:
                kind, message = _message(client)
                if kind == b"X":
                    return
                self._sessions[self.session].lend(client, kind, message)


class _Session:
    """A session on the server, which one client has at a time."""

    def __init__(self, url: str) -> None:
        self._owner = psycopg.connect(url, autocommit=True)  # it logs in, and is not used any further
        self._server = socket.socket(fileno=self._owner.fileno())
        self._server.setblocking(True)
        self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self.settings = {name: self._owner.info.parameter_status(name) or "" for name in _SETTINGS}

    def lend(self, client: socket.socket, kind: bytes, message: bytes) -> None:
        """Carry a client's messages from its first to the end of its transaction."""
        with self._lock, selectors.DefaultSelector() as selector:
            for end in (client, self._server):
                selector.register(end, selectors.EVENT_READ)
            self._server.sendall(message)
            unanswered = int(kind in b"QS")
            is_idle = False
            while unanswered or not is_idle:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._server in ready:
                    kind, message = _message(self._server)
                    client.sendall(message)
                    if kind == b"Z":
                        unanswered -= 1
                        is_idle = message[-1:] == b"I"
                if client in ready and (unanswered or not is_idle):
                    kind, message = _message(client)
                    self._server.sendall(message)
                    unanswered += kind in b"QS"

    def close(self) -> None:
        self._server.detach()
        self._owner.close()


def _greet(client: socket.socket, session: _Session) -> bool:
    """Log a client in, whoever it is. Return whether it wants to be."""
    while True:
        (length,) = struct.unpack("!i", _exactly(client, 4))
        (code,) = struct.unpack_from("!i", _exactly(client, length - 4))
        if code == _CANCEL:
            return False
        if code not in (_SSL, _GSS):
            break
        client.sendall(b"N")
    said = [(b"R", struct.pack("!i", 0)), (b"K", struct.pack("!ii", 1, 1)), (b"Z", b"I")]
    said[1:1] = [(b"S", f"{name}\0{value}\0".encode()) for name, value in session.settings.items()]
    client.sendall(b"".join(kind + struct.pack("!i", len(body) + 4) + body for kind, body in said))
    return True


def _message(link: socket.socket) -> tuple[bytes, bytes]:
    """Receive one message. Return its kind, and all of it."""
    head = _exactly(link, 5)
    (length,) = struct.unpack_from("!i", head, 1)
    return head[:1], head + _exactly(link, length - 4)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part: Any = link.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
