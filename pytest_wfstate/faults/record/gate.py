"""The gate: asked about each op on files below home before it happens, whichever recorder sees it.

I/O errors and kills are injected here.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from pytest_wfstate.faults.trace.ops import Op


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """An op that is about to happen."""

    kind: str
    """create, write, truncate, allocate, fsync, fdatasync, rename, unlink, mkdir, rmdir, link, symlink or sync."""
    path: str
    """Relative to home, which is "."; the old path of a rename. Empty if it is not below home."""
    new_path: str = ""
    """Of a rename."""
    size: int = 0
    """The number of bytes of a write."""


class Gate(Protocol):
    """Decides on each op before it happens, and is notified afterwards."""

    def before(self, intent: Intent, /) -> int | None:
        """Return None to let the op happen, or the number of bytes to cut a write to. Raise OSError to make it fail."""

    def after(self, *ops: Op) -> None:
        """Take note that the op happened. A write through a synchronous descriptor is two ops; SQLite passes none."""
