"""What all servers share: a folder, a port, a password, and how they are started and stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.folders import memory_folder
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.servers.process import PAUSE, Process
from pytest_wfstate.faults.temporary import TemporaryFolder

HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)  # below those that systems use for outgoing connections
_ROOM = 2**30
_PATIENCE = 60.0
"""Seconds that a server may take to start, or to stop."""


class CannotStart(WfstateError, OSError):
    """A server is installed, but does not start."""


class Server:
    """A server that the tests own, on loopback, with all its data in a temporary folder.

    It is a context manager that starts the server on entry; on exit it stops the server and removes the folder. If the
    tests are killed, so is the server. All tests of a session share it, so a test that kills it restarts it.

    The folder is in memory where there is room, which is faster than a disk. A kill loses nothing that was written
    either way. With `on_disk` the folder is on the disk, for measurements.
    """

    title: ClassVar[str]
    scheme: ClassVar[str]
    user: ClassVar[str] = ""
    database: ClassVar[str]
    end_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, on_disk: bool = False) -> None:
        base = None if on_disk else memory_folder(_ROOM)
        self._folders = [TemporaryFolder(self.scheme, base)]
        self._folder = self._folders[0].path
        self._log = self._folder / "log"
        self._password = secrets.token_hex()  # or else every user of this machine could connect
        self._port = free_port()
        self._process: Process | None = None
        self._account: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Where the server listens, once it has started. A restart does not change it."""
        return f"{self.scheme}://{self.user}:{self._password}@{HOST}:{self._port}/{self.database}"

    def kill(self) -> None:
        """Kill the server and its children by SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """Shut the server down cleanly. Idempotent, also after a kill."""
        if self._process is not None:
            self._process.end(self.end_signal, _PATIENCE)
            self._process = None

    def restart(self) -> None:
        """Start the server again, on the same data and at the same URL. Stop it first if it is running.

        Raises:
            CannotStart: it does not start.
        """
        self.stop()
        self._start()

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self._start_where_free()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for folder in self._folders:
            folder.remove()

    def _prepare(self) -> None:
        """Set up the folder before the first start."""

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _is_ready(self, process: Process) -> bool:
        """Whether the server accepts calls."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _start_where_free(self) -> None:
        """Start the server for the first time, at another port if its own was taken meanwhile."""
        while True:
            try:
                return self._start()
            except CannotStart as error:
                if os.strerror(errno.EADDRINUSE) not in str(error):  # the message quotes the log
                    raise
                self._port = free_port()

    def _start(self) -> None:
        self._process = Process(self._command(), self._folder, self._log, self._environment(), self._account)
        deadline = now() + _PATIENCE
        while not self._is_ready(self._process):
            status = self._process.status()
            if status is not None:
                self.kill()
                raise self._failure(f"exited with status {status} during start-up")
            if now() > deadline:
                self.kill()
                raise self._failure(f"was not ready after {_PATIENCE:g} s")
            time.sleep(PAUSE)

    def _failure(self, what: str) -> CannotStart:
        lines = self._log.read_text(errors="replace").splitlines()
        return CannotStart(
            f"{self.title} {what}. The end of its log:\n"
            + "".join(f"    {line}\n" for line in lines[-10:])
            + "Fix what it reports, or give the URL of a running server."
        )


def free_port() -> int:
    """Return a port that is not in use. It is random even if a test seeds `random`, so xdist workers differ."""
    ports = random.SystemRandom()
    while True:
        port = ports.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
