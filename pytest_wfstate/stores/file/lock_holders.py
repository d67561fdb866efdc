"""Who holds the lock on a folder, for the error of a call that waited in vain. Linux lists all locks in /proc/locks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_LOCKS = Path("/proc/locks")


def holders(fds: Iterable[int]) -> str:
    """Return which processes hold a lock on a folder or its gate, as far as the system shows them."""
    try:
        locks = _LOCKS.read_text()
        pids = sorted({pid for fd in fds for pid in _pids(os.fstat(fd), locks)})
    except OSError:
        pids = []
    if not pids:
        return "This system does not say by whom"
    return f"It is locked by {', '.join(map(_describe, pids))}"


def _pids(folder: os.stat_result, locks: str) -> Iterator[int]:
    """Yield the holders of a lock on a folder or file. Lines read `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`."""
    file = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    for line in locks.splitlines():
        fields = line.split()
        # A waiting lock has `->` in the second place. A holder in another container has no number here: -1 or 0.
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == file and fields[4].isdecimal():
            yield int(fields[4])


def _describe(pid: int) -> str:
    if pid == os.getpid():
        return "another call in this process"
    try:
        program = Path(f"/proc/{pid}/comm").read_text().strip()  # not its arguments, which may hold secrets
    except OSError:
        program = ""
    return f"process {pid}" + (f" ({program})" if program else "") if pid else "a process in another container"
