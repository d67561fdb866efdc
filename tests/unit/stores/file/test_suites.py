"""The file stores keep every promise of their contracts, also when the recovery from a crash is crashed.

Journals are compacted after three changes, and each store creates its own folder: short scenarios then cover both.
Of the three async stores, the snapshots are awaited. The others are called without a loop and a thread for each call.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import (
    FileEffectStore,
    FileHistoryStore,
    FileLockStore,
    FilePausedStore,
    FileQueueStore,
    FileResumeStore,
    FileRunStore,
    FileSnapshotStore,
    as_sync,
)
from pytest_wfstate.stores.file import journal
from pytest_wfstate.suites import (
    EffectSuite,
    HistorySuite,
    LockSuite,
    PausedSuite,
    QueueSuite,
    ResumeSuite,
    RunSuite,
    SnapshotSuite,
)


class InNewFolder:
    """Opens a store in a folder that does not exist yet."""

    crashes_recovery: ClassVar[bool] = True
    store: type[Any]

    @pytest.fixture(autouse=True)
    def _compact_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "_LEAST_CHANGES", 2)

    def open(self, home: Path) -> Any:
        return self.store(home / "new" / "folder", lock_timeout=math.inf)


class TestEffects(InNewFolder, EffectSuite):
    store = FileEffectStore

    def open(self, home: Path) -> Any:
        return as_sync(super().open(home))


class TestHistory(InNewFolder, HistorySuite):
    store = FileHistoryStore


class TestLock(InNewFolder, LockSuite):
    store = FileLockStore


class TestPaused(InNewFolder, PausedSuite):
    store = FilePausedStore


class TestQueue(InNewFolder, QueueSuite):
    store = FileQueueStore


class TestResume(InNewFolder, ResumeSuite):
    store = FileResumeStore


class TestRuns(InNewFolder, RunSuite):
    store = FileRunStore

    def open(self, home: Path) -> Any:
        return as_sync(super().open(home))


class TestSnapshots(InNewFolder, SnapshotSuite):
    store = FileSnapshotStore
