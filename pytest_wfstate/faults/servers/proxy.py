"""A loopback proxy in front of a server: it counts the messages of clients, and cuts a connection on request.

It needs to know no protocol, except to name messages. A message is everything a client sends before the server answers,
in any number of packets: a Redis command, a pipeline, or a PostgreSQL query with its parameters. Logging in counts too.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Literal, Self
from urllib.parse import urlsplit

from pytest_wfstate.faults.servers.base import HOST
from pytest_wfstate.faults.servers.messages import MessageNames

When = Literal["before", "after"]

_PORTS = {"redis": 6379, "postgresql": 5432}
_CHUNK = 1 << 16


class Proxy:
    """A proxy in front of the server at a URL. It is a context manager that listens on entry and stops on exit.

    `cut("before")` cuts a connection before its next message reaches the server. `cut("after")` cuts it once the
    server has answered, before the client receives anything: the call took effect, and the client cannot know.
    """

    def __init__(self, url: str) -> None:
        """Forward to the server at `url`, such as `scheme://host:port/...`.

        Raises:
            ValueError: the URL names no host.
        """
        parts = urlsplit(url)
        if not parts.hostname:
            shown = f"{parts.scheme}://{parts.path}"  # what else there is may hold a password
            raise ValueError(f"{shown!r} names no host, so a proxy cannot connect to it. Give scheme://host:port/...")
        self._upstream = (parts.hostname, parts.port or _PORTS.get(parts.scheme.partition("+")[0], 0))
        self._listener = socket.create_server((HOST, 0))
        login, separator, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{login}{separator}{HOST}:{self._listener.getsockname()[1]}").geturl()
        self.messages = 0
        """How many messages clients have sent."""
        self.cuts = 0
        """How many connections `cut` has cut."""
        self.cut_message = ""
        """What the message asked for at which a connection was last cut, as far as that is known."""
        self._plan: tuple[When, int] | None = None
        self._then: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._links: dict[_ProxiedConnection, threading.Thread] = {}
        self._is_closed = False
        self._acceptor = threading.Thread(target=self._accept, name="wfstate-proxy", daemon=True)

    def cut(self, when: When, nth: int = 1, then: Callable[[], None] = lambda: None) -> None:
        """Cut the connection that sends the n-th message from now, before it arrives or after it is answered.

        `then` is called first, in a thread of the proxy; until it returns, the client gets no answer.
        """
        with self._lock:
            self._plan = (when, self.messages + nth)
            self._then = then

    def cut_nothing(self) -> bool:
        """Cancel a planned cut. Return whether its message was sent: if it has no answer, it is not cut after one."""
        with self._lock:
            was_sent, self._plan = self._plan is None, None
            return was_sent

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
        with contextlib.suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass  # on every system, this alone wakes a thread that waits for a connection
        self._acceptor.join()
        self._listener.close()
        for link, thread in list(self._links.items()):
            link.cut()
            thread.join()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with self._lock:
                if self._is_closed:
                    client.close()
                    return
                link = _ProxiedConnection(self, client)
                self._links[link] = threading.Thread(target=self._run, args=[link], name="wfstate-link", daemon=True)
                self._links[link].start()

    def _run(self, link: _ProxiedConnection) -> None:
        link.run(self._upstream)
        with self._lock:
            if not self._is_closed:
                del self._links[link]

    def _next_message(self) -> When | None:
        """Count a message. Return when to cut its connection, or None."""
        with self._lock:
            self.messages += 1
            if self._plan is None or self._plan[1] != self.messages:
                return None
            (when, _), self._plan = self._plan, None
            return when

    def _will_cut(self, message: str) -> None:
        with self._lock:
            self.cut_message = message
            self.cuts += 1  # first: the call may kill a client, and the wait for it reads this count
        self._then()


class _ProxiedConnection:
    """One client's connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._is_answered = True
        self._planned: When | None = None
        self._names = MessageNames()
        self._message = ""

    def run(self, upstream: tuple[str, int]) -> None:
        """Carry bytes both ways until one side is done, or the connection is cut."""
        with self._client, contextlib.suppress(OSError):  # a side that has disconnected is done
            try:
                self._server = socket.create_connection(upstream)
                for connection in (self._client, self._server):
                    # Otherwise the system delays what follows a first small packet by 40 ms (Nagle's algorithm).
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._carry(self._server)
            finally:
                self.cut()  # before they are closed here: a forked process may hold copies
                if self._server is not None:
                    self._server.close()

    def cut(self) -> None:
        """End both connections, even if a forked process holds copies of their descriptors."""
        for connection in (self._client, self._server):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _carry(self, server: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(server, selectors.EVENT_READ)
            selector.register(self._client, selectors.EVENT_READ)
            is_open = True
            while is_open:
                ready = {key.fileobj for key, _ in selector.select()}
                # Answers first: a message that arrived at the same time was sent after them.
                if server in ready:
                    is_open = self._carry_answer(server)
                if is_open and self._client in ready:
                    is_open = self._carry_message(server)

    def _carry_message(self, server: socket.socket) -> bool:
        data = self._client.recv(_CHUNK)
        if data and self._is_answered:
            self._is_answered = False
            self._planned = self._proxy._next_message()
            self._message = self._names.name(data)
            if self._planned == "before":
                self._proxy._will_cut(self._message)
                return False
        server.sendall(data)
        return bool(data)

    def _carry_answer(self, server: socket.socket) -> bool:
        data = server.recv(_CHUNK)
        if data and self._planned == "after":
            self._proxy._will_cut(self._message)
            return False
        self._is_answered = True
        self._client.sendall(data)
        return bool(data)
