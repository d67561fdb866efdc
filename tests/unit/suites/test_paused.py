"""The paused stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FilePausedStore, MemoryPausedStore
from pytest_wfstate.suites import PausedSuite
from tests.unit.suites.homes import InMemory


class TestFile(PausedSuite):
    crashes_recovery = True

    def open(self, home: Path) -> FilePausedStore:
        return FilePausedStore(home, durability="power")


class TestMemory(InMemory, PausedSuite):
    store = MemoryPausedStore
