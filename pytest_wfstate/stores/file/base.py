"""What the file stores share: a folder, and how much of a crash it is to survive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import Store
from pytest_wfstate.stores.file.folder import Durability, Folder

R = TypeVar("R", PausedWorkflow, ResumePoint)


class FileStore(Store):
    """A store in a folder of its own, which is made when something is first saved.

    With `durability="power"` a call that has returned survives a power cut. With `"process"` nothing is fsynced: it
    survives the death of the process, and the last calls before a power cut may be lost, or leave a file that cannot
    be read.
    """

    def __init__(self, directory: str | os.PathLike[str], durability: Durability = "power") -> None:
        self._folder = Folder(directory, durability)

    @property
    def directory(self) -> Path:
        """The folder that holds everything."""
        return self._folder.home


def parse(kind: type[R], data: bytes, path: Path, run_id: str) -> R:
    """Read the record of `run_id` from the whole content of its file.

    Raises:
        CorruptRecord: the file does not hold such a record, or holds that of another run.

    """
    record = kind.from_json(data, path)
    if record.run_id != run_id:
        raise CorruptRecord(path, f"it is the record of run {record.run_id!r}, not of {run_id!r}")
    return record
