"""The file and memory stores of this package keep every promise of their contracts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest_wfstate as wf
from pytest_wfstate import suites
from tests.unit.suites.homes import InMemory


class InFiles:
    """What suites of file stores share. They crash the recovery as well."""

    crashes_recovery: ClassVar[bool] = True
    store: ClassVar[Callable[..., Any]]

    def open(self, home: Path) -> Any:
        return type(self).store(home, durability="power")


class TestFileEffects(InFiles, suites.EffectSuite):
    store = wf.FileEffectStore


class TestFilePaused(InFiles, suites.PausedSuite):
    store = wf.FilePausedStore


class TestFileResume(InFiles, suites.ResumeSuite):
    store = wf.FileResumeStore


class TestFileSnapshots(InFiles, suites.SnapshotSuite):
    store = wf.FileSnapshotStore


class TestFileRuns(InFiles, suites.RunSuite):
    store = wf.FileRunStore


class TestMemoryEffects(InMemory, suites.EffectSuite):
    store = wf.MemoryEffectStore


class TestMemoryPaused(InMemory, suites.PausedSuite):
    store = wf.MemoryPausedStore


class TestMemoryResume(InMemory, suites.ResumeSuite):
    store = wf.MemoryResumeStore


class TestMemorySnapshots(InMemory, suites.SnapshotSuite):
    store = wf.MemorySnapshotStore


class TestMemoryRuns(InMemory, suites.RunSuite):
    store = wf.MemoryRunStore
