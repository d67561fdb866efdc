"""Fixtures of the tests of faults."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a file of five bytes and an empty folder in it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "old").write_bytes(b"12345")
    (home / "folder").mkdir()
    return home
