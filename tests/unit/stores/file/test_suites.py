"""The file stores keep every promise of their contracts, also when the recovery from a crash is crashed.

Journals are compacted after three changes, and each store creates its own folder: short scenarios then cover both.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import Crash, FileEffectStore, FilePausedStore, FileResumeStore, FileRunStore, FileSnapshotStore
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.labs.lab import Settings
from pytest_wfstate.stores.file import journal
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite


@pytest.fixture
def _wfstate_crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """A lab whose bound is not time, so that it checks the same disks on a slow machine."""
    bounds = Bounds(request.cls.states, float("inf"), samples=1)
    lab = Crash(Settings(bounds=bounds, home=f"h{uuid.uuid4().hex[:15]}"))
    yield lab
    lab.close()


class InNewFolder:
    """Opens a store in a folder that does not exist yet."""

    crashes_recovery: ClassVar[bool] = True
    states: ClassVar[int] = 300
    store: type[Any]

    @pytest.fixture(autouse=True)
    def _compact_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "_LEAST_CHANGES", 2)

    def open(self, home: Path) -> Any:
        return self.store(home / "new" / "folder")


class TestEffects(InNewFolder, EffectSuite):
    states = 1500  # as many as it takes to find a torn line that an append does not cut off
    store = FileEffectStore


class TestPaused(InNewFolder, PausedSuite):
    store = FilePausedStore


class TestResume(InNewFolder, ResumeSuite):
    store = FileResumeStore


class TestRuns(InNewFolder, RunSuite):
    store = FileRunStore


class TestSnapshots(InNewFolder, SnapshotSuite):
    store = FileSnapshotStore
