"""What the file stores share: a folder, and which crashes it must survive."""

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
    """A store in a folder of its own, which the first change creates.

    With `durability="power"` a call that has returned survives a power cut. With `"process"` nothing is fsynced: the
    call survives the death of the process, but a power cut may lose the last calls or leave a file unreadable.
    """

    def __init__(self, directory: str | os.PathLike[str], durability: Durability = "power") -> None:
        self._folder = Folder(directory, durability)

    @property
    def directory(self) -> Path:
        """The folder that holds every file of the store."""
        return self._folder.home


def parse(kind: type[R], data: bytes, path: Path, run_id: str) -> R:
    """Parse the record of `run_id` from the whole content of its file.

    Raises:
        CorruptRecord: the file does not hold such a record, or holds that of another run.

    """
    record = kind.from_json(data, path)
    if record.run_id != run_id:
        raise CorruptRecord(path, f"it is the record of run {record.run_id!r}, not of {run_id!r}")
    return record
