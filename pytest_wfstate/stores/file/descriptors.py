"""Open files and folders, closed whatever happens: an error, a signal that raises, or a fork."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import stat
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from pytest_wfstate.stores.file.scope import scope
from pytest_wfstate.stores.unsafe_files import unsafe_file

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link, and no waiting for a pipe's other end
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)

_open_now: dict[int, list[int]] = {}  # every descriptor in use, in a list that its owner empties
_forking = threading.RLock()  # held across a fork, and until a new descriptor is in its list
_acquire, _release = operator.methodcaller("acquire"), operator.methodcaller("release")


@scope
def opened_folder(path: Path, *, before_close: Callable[[int], None] | None = None) -> Generator[int | None]:
    """Open a folder, and yield its descriptor, or None if it does not exist. A forked child closes its copy."""
    yield from _open(path, _FOLDER, missing=FileNotFoundError, before_close=before_close)


@scope
def opened_file(path: Path, flags: int, mode: int = 0o600) -> Generator[int]:
    """Open a regular file, and yield its descriptor.

    Raises:
        UnsafeFile: there is something else of that name. It is not followed, waited for, or changed.

    """
    yield from _open(path, flags | _FILE, mode)


@scope
def opened_file_if_any(path: Path, flags: int) -> Generator[int | None]:
    """Open a regular file like `opened_file`, but yield None if it does not exist."""
    yield from _open(path, flags | _FILE, missing=FileNotFoundError)


@scope
def opened_file_if_possible(
    path: Path, flags: int, mode: int, *, before_close: Callable[[int], None]
) -> Generator[int | None]:
    """Open a regular file like `opened_file`, but yield None if it cannot be opened or created, for any reason."""
    yield from _open(path, flags | _FILE, mode, missing=OSError, before_close=before_close)


def _open(
    path: Path,
    flags: int,
    mode: int = 0o777,
    *,
    missing: type[OSError] | tuple[()] = (),
    before_close: Callable[[int], None] | None = None,
) -> Generator[Any]:
    descriptor: list[int] = []
    held: list[Any] = []
    owned = descriptor, held, before_close
    with _closed(*owned), _closed(*owned):  # twice: a signal may interrupt one
        # In one call of C, which no signal divides: as soon as there is a lock or a descriptor, it is in its list.
        held.extend(filter(_acquire, (_forking,)))
        _open_now[id(descriptor)] = descriptor
        try:
            descriptor.extend(map(os.open, (path,), (flags,), (mode,)))
        except OSError as error:
            if error.errno in _NOT_A_FILE and flags & _FILE:
                raise unsafe_file(path, os.lstat(path).st_mode) from error
            if not isinstance(error, missing):
                raise
        _empty(held, _release)
        if descriptor and flags & _FILE and not stat.S_ISREG(kind := os.fstat(descriptor[0]).st_mode):
            raise unsafe_file(path, kind)
        yield descriptor[0] if descriptor else None


@scope
def _closed(descriptor: list[int], held: list[Any], before_close: Callable[[int], None] | None) -> Generator[None]:
    try:
        yield
    finally:
        _empty(held, _release)  # if `_open` was interrupted, or failed
        if descriptor and before_close is not None:  # the list is empty in a child that was forked meanwhile
            before_close(descriptor[0])
        _empty(descriptor, os.close)
        _open_now.pop(id(descriptor), None)


def _empty(owned: list[Any], end: Callable[[Any], Any]) -> None:
    """End what a list of one owns, exactly once: in one call of C, which no signal divides."""
    if owned:
        list(map(end, map(owned.pop, (0,))))


def _close_in_child() -> None:
    """Close the copies that a fork made, or the child would hold the locks on them after its parent died."""
    for descriptor in _open_now.values():
        while descriptor:
            with contextlib.suppress(OSError):
                os.close(descriptor.pop())
    _open_now.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_in_child)
