"""The resume stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FileResumeStore, MemoryResumeStore
from pytest_wfstate.suites import ResumeSuite
from tests.unit.suites.homes import InMemory


class TestFile(ResumeSuite):
    crashes_recovery = True

    def open(self, home: Path) -> FileResumeStore:
        return FileResumeStore(home, durability="power")


class TestMemory(InMemory, ResumeSuite):
    store = MemoryResumeStore
