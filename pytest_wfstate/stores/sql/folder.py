"""The folder of a database file, created so that it survives a power cut with everything in it."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder_of(file: Path) -> None:
    """Create the folder of `file` and those above it, and flush their names to the disk.

    SQLite flushes the name of the file, and nothing above it. If the file exists, its folders are durable: whoever
    created it has called this. If not, another process may have created folders and died, so all of them are fsynced.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in file.absolute().parents:
        if not _sync(folder):
            return


def _sync(folder: Path) -> bool:
    """Flush the names in a folder to the disk. False if it cannot be opened: then we cannot have created one in it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
