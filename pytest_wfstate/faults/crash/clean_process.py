"""A process that was forked before the workload ran, so that nothing the workload left in memory can help a check.

Checks run in the test's own process, for speed. A sample of them is run again here: if the two disagree, the check
relies on something in memory, which a crash would have taken. The outside world is the same for both.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connection
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pytest_wfstate.faults.forking import dumps, fork, loads
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.world.remote import TIMEOUT, WorldClient, WorldServer
from pytest_wfstate.faults.world.world import Worlds

Verdict = str | None
"""None if the check passed, else the message of its error."""

_TIMEOUT = 30.0  # seconds that a check may take


class CannotCompare(Exception):
    """The check could not be run in the clean process. The text says why."""


class CleanProcess:
    """Runs `check` with the memory that this process had when it was made."""

    def __init__(self, check: Callable[[Any], Verdict], worlds: Worlds, timeout: float = _TIMEOUT) -> None:
        self._timeout = timeout
        self._pipe, theirs = connection.Pipe()
        self._pid = fork()
        if self._pid == 0:
            self._pipe.close()
            _CleanChild(theirs, worlds).run(check)
        theirs.close()
        self._server = WorldServer(self._pipe, worlds)

    def check(self, subject: Any) -> Verdict:
        """Run the check there.

        Raises:
            CannotCompare: `subject` cannot be sent there, or the check does not end or kills its process.
        """
        try:
            request = dumps(subject)
        except Exception as error:
            raise CannotCompare(f"its argument cannot be sent to another process: {error}") from error
        try:
            self._pipe.send_bytes(request)
            answer = self._server.receive(now() + self._timeout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise CannotCompare("it ended the process")
        if answer == TIMEOUT:
            raise CannotCompare(
                f"it did not end there in {self._timeout:g} s: it may wait for a thread of this process"
            )
        kind, verdict = answer
        if kind == "cannot":
            raise CannotCompare(f"{verdict}")
        return None if verdict is None else str(verdict)

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


class _CleanChild(WorldClient):
    """The clean process itself."""

    def run(self, check: Callable[[Any], Verdict]) -> None:
        """Run checks until the pipe is closed. Does not return."""
        try:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # what a check prints was printed before
            self._worlds.remote = self
            os.setpgid(0, 0)
            while True:
                self._check(check, self._pipe.recv_bytes())
        finally:
            os._exit(0)

    def _check(self, check: Callable[[Any], Verdict], request: bytes) -> None:
        """Run one check in a fork of its own: what it leaves in memory must not help the next one either."""
        pid = fork()
        if pid == 0:
            self.send(*_verdict(check, request))
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            self.send("cannot", "it ended the process")


def _verdict(check: Callable[[Any], Verdict], request: bytes) -> tuple[str, Verdict]:
    try:
        subject = loads(request)
    except Exception as error:
        return "cannot", f"its argument cannot be read in another process: {error}"
    return "verdict", check(subject)
