"""The folder of a database file, made so that a power cut does not take it away with all that is in it."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder_of(file: Path) -> None:
    """Make the folder that `file` is to be in, and those above it, and bring their names to the disk.

    SQLite brings the name of the file there, and nothing above it. Once the file is there, so is all of that: who made
    it has come through here. As long as it is not, others may have made folders and died, so all of them are synced.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in file.absolute().parents:
        if not _sync(folder):
            return


def _sync(folder: Path) -> bool:
    """Bring the names in a folder to the disk. False if it cannot be opened: then nobody like us has made one in it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
