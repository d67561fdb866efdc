"""Lines of the user's code: which one is being executed, or requested the work that is."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import linecache
import os
import sys
import sysconfig
import threading
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of code."""

    path: str
    number: int
    function: str

    @property
    def text(self) -> str:
        """The source text, or "" if its file cannot be read."""
        return linecache.getline(self.path, self.number).strip()

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


class _Job(threading.local):
    line: SourceLine | None = None


job = _Job()
"""`job.line` is the line that submitted the work of this pool thread."""

origin: contextvars.ContextVar[SourceLine | None] = contextvars.ContextVar("origin", default=None)
"""The line that started this thread, or submitted this task from another thread."""


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file belongs to neither the standard library nor this package."""
    if filename.startswith(("<", _PACKAGE)):
        return False
    return not filename.startswith(_STANDARD) or is_installed(filename)


@functools.cache
def is_installed(filename: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "site-packages" in filename or "dist-packages" in filename


_line = functools.lru_cache(maxsize=4096)(SourceLine)


def causing_line() -> SourceLine | None:
    """Return the innermost line of the user's code that is being executed, or else the one that requested this work.

    A line of an installed library is only the last resort.
    """
    own, library = _lines(sys._getframe(1))
    return own or job.line or origin.get() or library


def users_line() -> SourceLine | None:
    """Return the innermost line of the user's code that is being executed in this thread."""
    own, library = _lines(sys._getframe(1))
    return own or library


def _lines(frame: FrameType | None) -> tuple[SourceLine | None, SourceLine | None]:
    """Return the innermost line of the user's own code, and that of an installed library."""
    library: SourceLine | None = None
    while frame is not None:
        # Our own frames are recognized by module: reading f_code raises an audit event, the slowest part of this loop.
        module = frame.f_globals.get("__name__") or ""
        if module.startswith("_pytest."):
            break  # pytest called the test from here
        if not _is_ours(module):
            code = frame.f_code
            if is_users(code.co_filename):
                line = _line(code.co_filename, frame.f_lineno, code.co_name)
                if not is_installed(code.co_filename):
                    return line, library
                library = library or line
        frame = frame.f_back
    return None, library


@functools.cache
def _is_ours(module: str) -> bool:
    return module.startswith("pytest_wfstate.")
