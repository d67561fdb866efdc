"""Other processes that lock a folder, and whether a folder is locked."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from pytest_wfstate import LockTimeout
from pytest_wfstate.stores.file.lock import Kind, locked

PREAMBLE = """
import fcntl, os, signal, sys, threading
from pathlib import Path
from pytest_wfstate.stores.file import descriptors
from pytest_wfstate.stores.file.lock import Kind, locked
home = Path(sys.argv[1])
"""

# The child runs until stdin ends; `ready` means that it runs its own code, after the hooks of the fork.
FORK = """
def fork_child():
    ready, signal_ = os.pipe()
    if os.fork() == 0:
        os.write(signal_, b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(ready, 1)
"""


class Program:
    """Another process, on the folder `home`, that ends when its stdin does."""

    def __init__(self, code: str, home: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, str(home), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def is_free(home: Path) -> bool:
    fd = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def can_lock(home: Path, kind: Kind) -> bool:
    try:
        with locked(home, kind, wait=0):
            return True
    except LockTimeout:
        return False
