"""Lines of the user's code: which one is being executed, or requested the work that is."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import inspect
import linecache
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_PASSING_ON = {
    *("aiofiles", "aiosqlite", "anyio", "filelock", "fsspec", "greenlet", "outcome", "peewee", "portalocker"),
    *("sniffio", "sqlalchemy", "sqlmodel", "trio", "uvloop"),
    *("backoff", "decorator", "stamina", "tenacity", "wrapt"),
    *("freezegun", "hypothesis", "pluggy", "pyfakefs", "pytest_asyncio", "time_machine", "xdist"),
}
"""Installed packages that work for whoever calls them: their own lines say less than those of their callers."""
_NETWORK = {"asyncio.base_events", "http.client", "selectors", "socket", "ssl"}
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
    waits: Callable[[], SourceLine | None] | None = None


job = _Job()
"""`job.line` is the line that submitted the work of this pool thread; `job.waits` finds the one that waits for it."""

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
    """Return the line that causes what this thread does.

    That is the innermost line of the store under test, which may be installed, or of the user's own code, or else the
    line that requested this work.
    """
    own, libraries = _lines(sys._getframe(1))
    line = _of_store(libraries) or own or job.line or origin.get()
    return line or (job.waits() if job.waits else None) or _innermost(libraries)


def users_line() -> SourceLine | None:
    """Return the innermost line of the user's code that is being executed in this thread."""
    return line_of(sys._getframe(1))


def line_of(frame: FrameType | None) -> SourceLine | None:
    """Return the innermost line of the user's code on a stack."""
    own, libraries = _lines(frame)
    return own or _innermost(libraries)


def waiting_line(threads: Iterable[int]) -> SourceLine | None:
    """Return the line at which one of these threads waits: for a server if one does, else for anything."""
    frames = sys._current_frames()
    waiting = [frames[thread] for thread in threads if thread in frames]
    waiting.sort(key=lambda frame: not any(above.f_globals.get("__name__") in _NETWORK for above in _stack(frame)))
    return next(filter(None, map(_waiting_line, waiting)), None)


def _waiting_line(frame: FrameType) -> SourceLine | None:
    loop = _loop_in(frame)
    tasks = [] if loop is None else [line for line in map(_line_of_task, asyncio.all_tasks(loop)) if line]
    if len(tasks) == 1:
        return tasks[0]
    own, libraries = _lines(frame)
    return _of_store(libraries) or own


def _lines(frame: FrameType | None) -> tuple[SourceLine | None, list[SourceLine]]:
    """Return the innermost line of the user's own code, and those of installed libraries that it calls."""
    libraries: list[SourceLine] = []
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
                    return line, libraries
                libraries.append(line)
        frame = frame.f_back
    return None, libraries


def _innermost(lines: list[SourceLine]) -> SourceLine | None:
    return lines[0] if lines else None


def _of_store(libraries: list[SourceLine]) -> SourceLine | None:
    """Return the innermost line of the package that the user's code calls, unless that only passes calls on."""
    packages = [_package(line.path) for line in libraries]
    store = next((package for package in reversed(packages) if package not in _PASSING_ON), None)
    return libraries[packages.index(store)] if store else None


@functools.cache
def _package(filename: str) -> str:
    """Return the name of the installed package, or module, that a file belongs to."""
    below = re.split(r"(?:site|dist)-packages[/\\]", filename)[-1]
    return re.split(r"[/\\.]", below)[0]


def _loop_in(frame: FrameType | None) -> asyncio.AbstractEventLoop | None:
    """Return the event loop that a thread runs."""
    loops = (above.f_locals.get("self") for above in _stack(frame) if above.f_code.co_name == "run_forever")
    return next((loop for loop in loops if isinstance(loop, asyncio.AbstractEventLoop)), None)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line_of_task(task: asyncio.Task[Any]) -> SourceLine | None:
    """Return the innermost line of the user's own code at which a task waits."""
    return line_of_coroutine(task.get_coro())


def line_of_coroutine(coroutine: Any) -> SourceLine | None:
    """Return the innermost line of the user's own code at which a coroutine waits."""
    line: SourceLine | None = None
    while inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
        code = coroutine.cr_frame.f_code
        if is_users(code.co_filename) and not is_installed(code.co_filename):
            line = _line(code.co_filename, coroutine.cr_frame.f_lineno, code.co_name)
        coroutine = coroutine.cr_await
    return line


@functools.cache
def _is_ours(module: str) -> bool:
    return module.startswith("pytest_wfstate.")
