"""Stores in a folder: after a crash every change is there in full or not at all."""

from pytest_wfstate.stores.file.effects import FileEffectStore
from pytest_wfstate.stores.file.history import FileHistoryStore
from pytest_wfstate.stores.file.lock_store import FileLockStore
from pytest_wfstate.stores.file.paused import FilePausedStore
from pytest_wfstate.stores.file.queue import FileQueueStore
from pytest_wfstate.stores.file.resume import FileResumeStore
from pytest_wfstate.stores.file.runs import FileRunStore
from pytest_wfstate.stores.file.seeds import ForeignFile
from pytest_wfstate.stores.file.snapshots import FileSnapshotStore

__all__ = [
    "FileEffectStore",
    "FileHistoryStore",
    "FileLockStore",
    "FilePausedStore",
    "FileQueueStore",
    "FileResumeStore",
    "FileRunStore",
    "FileSnapshotStore",
    "ForeignFile",
]
