"""The memory stores keep every promise of their contracts."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pytest_wfstate as wf
from pytest_wfstate import suites
from pytest_wfstate.labs.storm import Medium


class InMemory:
    """What suites of memory stores share: a store for each home, until the end of the test."""

    medium: ClassVar[Medium] = "memory"
    store: ClassVar[Callable[[], Any]]

    @pytest.fixture(autouse=True)
    def _make_stores(self) -> Iterator[None]:
        self.stores: dict[Path, Any] = collections.defaultdict(type(self).store)
        yield
        del self.stores  # pytest keeps this object for as long as it runs

    def open(self, home: Path) -> Any:
        return self.stores[home].handle()


class TestMemoryEffects(InMemory, suites.EffectSuite):
    store = wf.MemoryEffectStore


class TestMemoryHistory(InMemory, suites.HistorySuite):
    store = wf.MemoryHistoryStore


class TestMemoryLock(InMemory, suites.LockSuite):
    store = wf.MemoryLockStore


class TestMemoryPaused(InMemory, suites.PausedSuite):
    store = wf.MemoryPausedStore


class TestMemoryQueue(InMemory, suites.QueueSuite):
    store = wf.MemoryQueueStore


class TestMemoryResume(InMemory, suites.ResumeSuite):
    store = wf.MemoryResumeStore


class TestMemorySnapshots(InMemory, suites.SnapshotSuite):
    store = wf.MemorySnapshotStore


class TestMemoryRuns(InMemory, suites.RunSuite):
    store = wf.MemoryRunStore
