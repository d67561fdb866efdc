"""The effect stores of this package keep every promise of their contract."""

from __future__ import annotations

from pathlib import Path

from pytest_wfstate import FileEffectStore, MemoryEffectStore
from pytest_wfstate.suites import EffectSuite
from tests.unit.suites.homes import InMemory


class TestFile(EffectSuite):
    crashes_recovery = True

    def open(self, home: Path) -> FileEffectStore:
        return FileEffectStore(home, durability="power")


class TestMemory(InMemory, EffectSuite):
    store = MemoryEffectStore
