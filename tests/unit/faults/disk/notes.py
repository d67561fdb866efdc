"""Ways to keep notes in files, sound and careless, for workloads."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file in one call, without fsync."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, data)
    os.close(fd)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(home: Path, text: str, name: str = "note") -> None:
    """Save a note so that it survives everything."""
    write(home / f"{name}.tmp", text.encode())
    sync(home / f"{name}.tmp")
    os.replace(home / f"{name}.tmp", home / name)
    sync(home)


def save_without_folder_fsync(home: Path, text: str) -> None:
    write(home / "note.tmp", text.encode())
    sync(home / "note.tmp")
    os.replace(home / "note.tmp", home / "note")


def save_without_file_fsync(home: Path, text: str) -> None:
    write(home / "note.tmp", text.encode())
    os.replace(home / "note.tmp", home / "note")
    sync(home)


def save_without_fsync(home: Path, text: str) -> None:
    write(home / "note.tmp", text.encode())
    os.replace(home / "note.tmp", home / "note")


def append(path: Path, line: str) -> None:
    """Append a line to an existing file, without fsync."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def read(home: Path, name: str = "note") -> str | None:
    """Return a note, or None if it does not exist."""
    path = home / name
    return path.read_text() if path.exists() else None
