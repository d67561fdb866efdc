"""The gate: asked about each op on files below home before it happens, whichever recorder sees it.

I/O errors and kills are injected here. A gate that fails ops is also asked about calls that change nothing, but may
fail: reads, listings of folders, and closes of files with unsynced writes.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, Protocol

from pytest_wfstate.faults.trace.ops import Op

Room = Literal["needs", "frees", "same"]


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """An op that is about to happen."""

    kind: str
    """create, write, truncate, allocate, fsync, fdatasync, rename, unlink, mkdir, rmdir, link, symlink or sync; if
    errors are injected, also read, list, close or setxattr."""
    path: str
    """Relative to home, which is "."; the old path of a rename. Empty if it is not below home."""
    new_path: str = ""
    """Of a rename."""
    size: int = 0
    """The number of bytes of a write."""
    room: Room = "same"
    """Whether it needs more room on the disk, or frees some. An fsync needs it for what was written since the last."""


class Gate(Protocol):
    """Decides on each op before it happens, and is notified afterwards."""

    injects_errors: bool
    """Whether it may make ops fail. It is then asked about reads, listings and closes as well, and told about room."""

    def before(self, intent: Intent, /) -> int | None:
        """Return None to let the op happen, or the number of bytes to cut a write to. Raise OSError to make it fail."""

    def after(self, *ops: Op) -> None:
        """Take note that the op happened. A write through a synchronous descriptor is two ops; SQLite passes none."""
