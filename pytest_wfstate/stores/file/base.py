"""What the file stores share: a folder, and which crashes it must survive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, TypedDict, TypeVar, Unpack

from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.contracts.resume import ResumePoint
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import Store
from pytest_wfstate.stores.file.folder import Durability, Folder
from pytest_wfstate.stores.file.seeds import SeedNames

R = TypeVar("R", PausedWorkflow, ResumePoint)


class FileSettings(TypedDict, total=False):
    """The settings that every file store takes by name."""

    lock_timeout: float
    """For how many seconds a call waits for the lock on the folder before it raises `LockTimeout`; 20 by default."""
    mode: int
    """The permissions of new files, less those that the umask forbids; 0o600 by default. Folders match: 0o700."""


class FileStore(Store):
    """A store in a folder of its own, which the first change creates.

    With `durability="power"` a call that has returned survives a power cut. With `"process"` nothing is fsynced: the
    call survives the death of the process, but a power cut may lose the last calls or leave a file unreadable.
    """

    contract: ClassVar[str]
    """What the marker of its folder says."""
    seeds: ClassVar[SeedNames | None] = None
    """How another program names the files of such a store."""

    def __init__(
        self, directory: str | os.PathLike[str], durability: Durability = "power", **settings: Unpack[FileSettings]
    ) -> None:
        self._folder = Folder(directory, durability, contract=self.contract, seeds=self.seeds, **settings)

    @property
    def directory(self) -> Path:
        """The folder that holds every file of the store."""
        return self._folder.home


def load(folder: Folder, kind: type[R], run_id: str, suffix: str) -> R | None:
    """Return the record of `run_id` from its file; None if there is none.

    Raises:
        CorruptRecord: the file does not hold such a record, or holds that of another run.

    """
    found = folder.read_record(run_id, suffix)
    return None if found is None else parse(kind, found[1], folder.path(found[0]), run_id)


def parse(kind: type[R], data: bytes, path: Path, run_id: str) -> R:
    """Parse the record of `run_id` from the whole content of its file.

    Raises:
        CorruptRecord: the file does not hold such a record, or holds that of another run.

    """
    record = kind.from_json(data, path)
    if record.run_id != run_id:
        raise CorruptRecord(path, f"it is the record of run {record.run_id!r}, not of {run_id!r}")
    return record
