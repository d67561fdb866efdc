"""The run stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FileRunStore, MemoryRunStore
from pytest_wfstate.suites import RunSuite
from tests.unit.suites.homes import InMemory


class TestFile(RunSuite):
    crashes_recovery = True

    def open(self, home: Path) -> FileRunStore:
        return FileRunStore(home, durability="power")


class TestMemory(InMemory, RunSuite):
    store = MemoryRunStore
