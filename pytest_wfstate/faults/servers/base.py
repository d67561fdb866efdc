"""What servers of every kind share: a folder, a port, a password, and how they are started and ended."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pytest_wfstate.errors import WfstateError
from pytest_wfstate.faults.folders import memory_folder
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.servers.process import PAUSE, Process

HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)  # systems take the ports of outgoing connections from above these
_ROOM = 2**30
_PATIENCE = 60.0
"""Seconds for a server to start, or to end."""


class CannotStart(WfstateError, OSError):
    """A server that was found did not start."""

    __module__ = "pytest_wfstate"


class Server:
    """A server of the tests' own, on loopback, with all it keeps in a temporary folder.

    It is a context manager: started on entry; ended on exit, and its folder removed. If the tests are killed, it is
    too. Whoever kills it starts it again: it is shared by all tests of the session.

    Its folder is in memory where there is room, so that nobody waits for a disk: what a server had written when it was
    killed, the operating system has. Only a power cut takes more, and of power cuts nothing is shown here. With
    `on_disk` it is on the disk, as when it is measured.
    """

    title: ClassVar[str]
    scheme: ClassVar[str]
    user: ClassVar[str] = ""
    database: ClassVar[str]
    end_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, on_disk: bool = False) -> None:
        base = None if on_disk else memory_folder(_ROOM)
        self._folder = Path(tempfile.mkdtemp(prefix=f"wfstate-{self.scheme}-", dir=base))
        self._folders = [self._folder]
        self._log = self._folder / "log"
        self._password = secrets.token_hex()  # else every user of this machine could have it do what it may do
        self._port = free_port()
        self._process: Process | None = None
        self._account: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Where it listens, once it was started. It stays the same after a restart."""
        return f"{self.scheme}://{self.user}:{self._password}@{HOST}:{self._port}/{self.database}"

    def kill(self) -> None:
        """End it by SIGKILL, its children too. Killing it again is no error."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """End it in good order. Stopping it again, or once it was killed, is no error."""
        if self._process is not None:
            self._process.end(self.end_signal, _PATIENCE)
            self._process = None

    def restart(self) -> None:
        """Start it again, on what it has kept and at the same URL. If it still runs it is stopped first.

        Raises:
            CannotStart: it did not.
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
            shutil.rmtree(folder)

    def _prepare(self) -> None:
        """Set up the folder, before the first start."""

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _is_ready(self, process: Process) -> bool:
        """Tell whether it takes calls."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _start_where_free(self) -> None:
        """Start it for the first time, at another port if somebody has taken its own since that was chosen."""
        while True:
            try:
                return self._start()
            except CannotStart as error:
                if os.strerror(errno.EADDRINUSE) not in str(error):  # in what it shows of the server's log
                    raise
                self._port = free_port()

    def _start(self) -> None:
        self._process = Process(self._command(), self._folders, self._log, self._environment(), self._account)
        deadline = now() + _PATIENCE
        while not self._is_ready(self._process):
            status = self._process.status()
            if status is not None:
                self.kill()
                raise self._failure(f"ended with status {status} while it started")
            if now() > deadline:
                self.kill()
                raise self._failure(f"was not ready after {_PATIENCE:g} s")
            time.sleep(PAUSE)

    def _failure(self, what: str) -> CannotStart:
        lines = self._log.read_text(errors="replace").splitlines()
        return CannotStart(
            f"{self.title} {what}. Its log ends with\n"
            + "".join(f"    {line}\n" for line in lines[-10:])
            + "Mend what it complains of, or give the URL of a server that runs."
        )


def free_port() -> int:
    """Find a port that nobody listens on, each process of xdist another one whatever seeds its random numbers."""
    ports = random.SystemRandom()
    while True:
        port = ports.choice(_PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((HOST, port))
            return port
