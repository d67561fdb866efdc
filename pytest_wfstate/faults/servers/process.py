"""The process of a server, and what ends with it: its children, and itself if the tests are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Waits until the tests are gone, however they ended: then nobody holds the other end of its standard input.
_GUARD = 'read -r _; kill -KILL "$1"; shift; rm -rf "$@"'

PAUSE = 0.01
"""Seconds between two looks at a process."""


class Process:
    """A running server. Nothing is ever signalled that was not started here."""

    def __init__(
        self,
        command: Sequence[str],
        folders: Sequence[Path],
        log: Path,
        env: Mapping[str, str],
        account: Mapping[str, Any],
    ) -> None:
        """Start `command` in the first of `folders`, as another user if `account` says so.

        If the tests are killed, it ends with them, and the folders are removed.
        """
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                cwd=folders[0],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests, which end it in their own time
                **account,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self.pid), *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def status(self) -> int | None:
        """Give the exit status, or None while it runs."""
        return self._popen.poll()

    def kill(self) -> None:
        """Kill it and its children by SIGKILL, and wait until they are gone."""
        if self.status() is None:
            # Stopped first, it cannot start another child while they are looked for.
            self._popen.send_signal(signal.SIGSTOP)
            _kill_all([one.pid for one in running() if one.parent == self.pid])
            self._popen.kill()
            self._popen.wait()
        self._guard.kill()
        self._guard.communicate()

    def end(self, sign: signal.Signals, seconds: float) -> None:
        """Ask it to end by a signal; kill it if it has not after some seconds."""
        if self.status() is None:
            self._popen.send_signal(sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(seconds)
        self.kill()


class Running(NamedTuple):
    """A process that has not ended."""

    pid: int
    parent: int


def running() -> list[Running]:
    """List the processes that can be seen. Those that have ended, and that nobody has asked about yet, are not."""
    return [Running(pid, parent) for pid, parent, state in _listed() if state[0] not in "ZX"]


def _listed() -> Iterator[tuple[int, int, str]]:
    if not Path("/proc/self/stat").exists():
        lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], check=True, capture_output=True, text=True)
        for pid, parent, state in map(str.split, lines.stdout.splitlines()):
            yield int(pid), int(parent), state
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it is gone meanwhile
            # proc(5): the name, which may hold anything, stands in parentheses; then come the state and the parent.
            state, parent, *_ = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(name), int(parent), state


def _kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # A kill takes a moment, and what it ends may hold a lock until then, or a piece of shared memory.
    while {one.pid for one in running()}.intersection(pids):
        time.sleep(PAUSE)
