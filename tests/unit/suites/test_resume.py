"""The resume stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FileResumeStore, MemoryResumeStore
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.homes import Memories


class TestFile(ResumeSuite):
    def open(self, home: Path) -> FileResumeStore:
        return FileResumeStore(home, durability="power")


class TestMemory(ResumeSuite):
    medium = "memory"
    stores = Memories(MemoryResumeStore)

    def open(self, home: Path) -> MemoryResumeStore:
        return self.stores[home].handle()
