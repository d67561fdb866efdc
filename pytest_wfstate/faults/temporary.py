"""Temporary folders that go with the process that made them, however it ends.

If it is killed, a guard removes its folders. If the guard is killed as well, as in a container that is out of memory,
the next run removes them: the name of a folder tells which process made it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tempfile
from pathlib import Path

from pytest_wfstate.faults.folders import remove
from pytest_wfstate.faults.guard import Guard

_NAME = re.compile(r"wfstate-[a-z-]+-(?P<system>[0-9a-f]{8})-(?P<pid>[0-9]+)-(?P<start>[0-9]+)-\w+")
_NAMESPACES = ("/proc/self/ns/pid", "/proc/self/ns/time")  # what process ids and start times are relative to
# More than once: a process that is about to end may still write there.
_REMOVE = 'for _ in 1 2 3 4 5; do chmod -R u+rwX "$1"; rm -rf "$1" && break; sleep 1; done'


class TemporaryFolder:
    """A new folder, in `base` or where temporary files belong."""

    def __init__(self, kind: str, base: str | None = None) -> None:
        base = base or tempfile.gettempdir()
        _sweep_once(base)
        owner = _owner()
        prefix = f"wfstate-{kind}-{owner}-" if owner else f"wfstate-{kind}-"
        # Resolved once, here: TMPDIR may be behind a symlink, and paths are compared as text.
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=base)))
        self._guard = Guard(_REMOVE, str(self.path))

    def remove(self) -> None:
        """Remove it and all that is in it. Idempotent."""
        try:
            remove(self.path)
        except OSError:
            self._guard.act()
        else:
            self._guard.dismiss()


@functools.cache
def _sweep_once(base: str) -> None:
    sweep(base)


def sweep(base: str) -> None:
    """Remove the temporary folders of processes that have certainly ended: this user's, and of this system only.

    Processes of another machine, boot or container cannot be seen from here, so their folders are left alone.
    """
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name and name["system"] == _system() and _has_ended(int(name["pid"]), int(name["start"])):
                with contextlib.suppress(OSError):  # another worker may be removing it
                    if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        remove(entry.path)


def _owner() -> str | None:
    """Return a name of this process that no other process ever has, or None if it cannot be known."""
    system, pid = _system(), os.getpid()
    return f"{system}-{pid}-{_start(pid)}" if system else None


def _system() -> str | None:
    """Return a name of the system whose processes can be seen here: one boot of a machine, or one container on it."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self") == str(os.getpid()):  # or else it is the /proc of another container
            boot = Path("/proc/sys/kernel/random/boot_id").read_text()
            spaces = [
                os.readlink(path) for path in ("/proc/self/ns/pid", "/proc/self/ns/time") if os.path.lexists(path)
            ]
            return hashlib.sha256("".join([boot, *spaces]).encode()).hexdigest()[:8]
    return None


def _start(pid: int) -> int:
    """Return when a process was started, in ticks since the boot: field 22 of its status, see proc(5)."""
    # The second field, the name of the program, is in parentheses and may contain anything.
    return int(Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()[19])


def _has_ended(pid: int, start: int) -> bool:
    """Whether a process has ended, even if another has its id by now."""
    try:
        os.kill(pid, 0)
        return _start(pid) != start
    except ProcessLookupError:
        return True
    except OSError:  # it cannot be seen
        return False
