"""The process of a server, which ends with its children, and with the tests if they are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_wfstate.faults.guard import Guard

PAUSE = 0.01
"""Seconds between two polls of a process."""


class Process:
    """A running server. Only processes that were started here are ever signalled."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        log: Path,
        env: Mapping[str, str],
        account: Mapping[str, Any],
    ) -> None:
        """Start `command` in `folder`, as the user that `account` names, if any.

        If the tests are killed, the process is killed too.
        """
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests, which then stop the server
                **account,
            )
        # Not PR_SET_PDEATHSIG: that is for the end of this thread, and a server outlives the thread that restarts it.
        self._guard = Guard('kill -KILL "$1"', str(self.pid))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def status(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        return self._popen.poll()

    def kill(self) -> None:
        """Kill the process and its children by SIGKILL, and wait until they are gone."""
        if self.status() is None:
            # Suspended first, so that it cannot start another child meanwhile.
            self._popen.send_signal(signal.SIGSTOP)
            _kill_all([process.pid for process in running() if process.parent == self.pid])
            self._popen.kill()
            self._popen.wait()
        self._guard.dismiss()

    def end(self, sign: signal.Signals, seconds: float) -> None:
        """Ask the process to end by a signal. Kill it if it has not ended after some seconds."""
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
    """Return the visible processes, without zombies."""
    return [Running(pid, parent) for pid, parent, state in _listed() if state[0] not in "ZX"]


def _listed() -> Iterator[tuple[int, int, str]]:
    if not Path("/proc/self/stat").exists():
        lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], check=True, capture_output=True, text=True)
        for pid, parent, state in map(str.split, lines.stdout.splitlines()):
            yield int(pid), int(parent), state
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            # proc(5): the name, which may contain anything, is in parentheses; the state and the parent follow.
            state, parent, *_ = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(name), int(parent), state


def _kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # A killed process takes a moment to end, and may hold a lock or shared memory until then.
    while {process.pid for process in running()}.intersection(pids):
        time.sleep(PAUSE)
