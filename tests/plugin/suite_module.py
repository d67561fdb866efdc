"""A test module with a suite, for tests that run pytest inside pytest."""

from __future__ import annotations

import pytest

SUITE = """
import pytest
from pytest_wfstate import FilePausedStore, MemoryPausedStore, PausedWorkflow
from pytest_wfstate.suites import PausedSuite

class TestStore(PausedSuite):
    def open(self, home):
        return FilePausedStore(home)
"""
CORE = "wfstate(level='core')"
UNSORTED = "    def list(self): return super().list()[::-1]"


def write_suite(pytester: pytest.Pytester, body: str = "", base: str = "FilePausedStore", suite: str = "") -> None:
    """Write a suite for a store that differs from a shipped one by its body."""
    pytester.path.joinpath("test_store.py").write_text(
        SUITE.replace("class TestStore", f"class Store({base}):\n    pass\n{body}\n\nclass TestStore").replace(
            "return FilePausedStore(home)", f"return Store(home)\n{suite}"
        )
    )
