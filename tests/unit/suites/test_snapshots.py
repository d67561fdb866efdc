"""The snapshot stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FileSnapshotStore, MemorySnapshotStore
from pytest_wfstate.suites import SnapshotSuite
from tests.unit.suites.homes import InMemory


class TestFile(SnapshotSuite):
    crashes_recovery = True

    def open(self, home: Path) -> FileSnapshotStore:
        return FileSnapshotStore(home, durability="power")


class TestMemory(InMemory, SnapshotSuite):
    store = MemorySnapshotStore
