"""A PostgreSQL server that the tests own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pytest_wfstate.faults.servers.base import CannotStart, Server
from pytest_wfstate.faults.servers.places import ProgramFolder, find_postgres
from pytest_wfstate.faults.servers.process import Process
from pytest_wfstate.faults.temporary import TemporaryFolder

_UNPRIVILEGED = ("postgres", "nobody")


class PostgresServer(Server):
    """PostgreSQL. It refuses to run as root, so tests run by root start it as the user `postgres` or `nobody`."""

    title = "PostgreSQL"
    scheme = "postgresql"
    user = "postgres"
    database = "postgres"
    end_signal = signal.SIGINT  # "fast": it does not wait for clients to disconnect

    def __init__(self, place: ProgramFolder | None = None, *, on_disk: bool = False) -> None:
        self._place = place or find_postgres()
        self._fsync = "on" if on_disk else "off"
        super().__init__(on_disk=on_disk)
        self._data = self._folder / "data"

    def kill(self) -> None:
        """Kill the server and its children by SIGKILL. Idempotent."""
        super().kill()
        # A new process may have the old process id by now, and PostgreSQL would think that it is still running.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self.stop()  # a kill leaves shared memory behind, which only the next start would free
        super().__exit__()

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            self._become(_unprivileged())
        password = self._folder / "password"
        password.write_text(_verifier(self._password))
        os.chown(password, *_owner(self._folder))
        command = [str(self._programs / "initdb"), "--pgdata", str(self._data), "--pwfile", str(password)]
        # Text sorts as in Python. Nothing is synced: an empty database need not survive a crash of the machine.
        command += ["--username", self.user, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run(command)
        password.unlink()

    def _command(self) -> Sequence[str]:
        # Shared memory is in files of the server's own folder: elsewhere it would outlive a kill.
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "dynamic_shared_memory_type=mmap"]
        settings += [
            f"fsync={self._fsync}",
            "max_wal_size=256MB",
        ]  # a fourth of the default: the folder may be in memory
        options = [word for setting in settings for word in ("-c", setting)]
        return [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self._port), *options]

    def _is_ready(self, process: Process) -> bool:
        """Read the file that pg_ctl reads: the process id is in its first line and the state in its last."""
        try:
            lines = (self._data / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(process.pid)] and lines[-1] == "ready"

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    @property
    def _programs(self) -> Path:
        return self._place.programs

    def _become(self, user: pwd.struct_passwd) -> None:
        self._account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        if self._place.wheel is not None:
            # On the disk: many a system runs no program that is in memory.
            self._folders.append(TemporaryFolder(f"{self.scheme}-programs"))
            self._place = _copied(self._place.programs, self._place.wheel, self._folders[-1].path)
        for folder in self._folders:
            os.chown(folder.path, user.pw_uid, user.pw_gid)

    def _run(self, command: Sequence[str]) -> None:
        with self._log.open("wb") as log:
            try:
                status = subprocess.run(
                    command, cwd=self._folder, env=self._environment(), stdout=log, stderr=log, **self._account
                ).returncode
            except PermissionError as error:
                raise CannotStart(
                    f"{command[0]} cannot be run: {error}. PostgreSQL refuses to run as root, so it was started as "
                    f"user {self._account.get('user')}. Install it where every user may run it, or do not run the "
                    "tests as root."
                ) from error
        if status != 0:
            raise self._failure(f"could not be set up: `{' '.join(command)}` exited with status {status}")


def _verifier(password: str) -> str:
    """Return what PostgreSQL stores of a password (RFC 5803), made in one round.

    The password is as long as a key and cannot be guessed; the usual 4,096 rounds would be most of the cost of a
    connection.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_64, stored_64, server_64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256$1:{salt_64}${stored_64}:{server_64}"


def _unprivileged() -> pwd.struct_passwd:
    users = {user.pw_name: user for user in pwd.getpwall()}
    for name in _UNPRIVILEGED:
        if name in users:
            return users[name]
    raise CannotStart(
        "PostgreSQL refuses to run as root, and no other user was found to run it. Looked for "
        f"{' and '.join(_UNPRIVILEGED)}. Add one of them, or do not run the tests as root."
    )


def _owner(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_uid, status.st_gid


def _copied(programs: Path, wheel: Path, to: Path) -> ProgramFolder:
    """Copy what PostgreSQL needs from a wheel, which may be in a folder that only root can read."""
    install = programs.parent
    shutil.copytree(install, to / wheel.name / install.name)
    libraries = wheel.with_name(f"{wheel.name}.libs")  # where wheels keep libraries, relative to the programs
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name)
    return ProgramFolder(to / wheel.name / install.name / "bin")
