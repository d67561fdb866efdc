"""A guard: a small process that cleans up after the tests if they are killed, when nothing of theirs can run."""

from __future__ import annotations

import os
import subprocess

_SHELL = "/bin/sh"


class Guard:
    """Runs a shell command once this process has ended, however it ends, unless it is dismissed before.

    It waits for the end of its standard input, whose other end this process has. Forked children have it, too, so it
    waits for them as well. It is in a session of its own: Ctrl-C and a signal to the group of the tests miss it.
    A system without a shell has no guards.
    """

    def __init__(self, command: str, *args: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if os.access(_SHELL, os.X_OK):
            self._process = subprocess.Popen(
                [_SHELL, "-c", f"read -r _; {command}", "guard", *args],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End it: there is nothing to clean up. Idempotent."""
        if self._process is not None:
            self._process.kill()
        self.act()

    def act(self) -> None:
        """Have it clean up now, and wait until it has. Idempotent."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
