"""Folders: read what one holds, remove one whatever it holds, and find one that is kept in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

Content = Mapping[str, bytes | str | None]
"""Path below a folder to the bytes of a file, the target of a symlink, or None for a folder."""

_MEMORY = "/dev/shm"
_ROOM = 256 * 2**20


def memory_folder(room: int = _ROOM) -> str | None:
    """Return a folder kept in memory with at least `room` bytes free, or None, which `tempfile` takes for the disk."""
    with contextlib.suppress(OSError):
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > room:
            return _MEMORY
    return None


def read_content(folder: Path) -> dict[str, bytes | str | None]:
    """Return what is below a folder, sorted by path; nothing if it does not exist. A pipe or socket reads as empty."""
    return dict(sorted(_read(folder, "")))


def _read(folder: Path | str, prefix: str) -> Iterator[tuple[str, bytes | str | None]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.is_symlink():
            yield path, os.readlink(entry.path)
        elif entry.is_dir():
            yield path, None
            yield from _read(entry.path, path + "/")
        else:
            yield path, Path(entry.path).read_bytes() if entry.is_file() else b""


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file or folder, even one without permissions, but never the target of a symlink."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # which error unlinking a folder raises depends on the system
        _remove_folder(path)


def _remove_folder(path: str | os.PathLike[str]) -> None:
    try:
        _empty(path)
    except PermissionError:
        os.chmod(path, 0o700)
        _empty(path)
    os.rmdir(path)


def _empty(path: str | os.PathLike[str]) -> None:
    with os.scandir(path) as scan:
        entries = list(scan)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(entry.path)
        else:
            os.unlink(entry.path)
