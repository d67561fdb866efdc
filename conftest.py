"""Configuration of this project's own tests."""

from __future__ import annotations

import os
import tempfile

import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Have the many Pythons that tests start share what they compile, also where they are told to keep none of it."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="wfstate-compiled-")
        config.add_cleanup(folder.cleanup)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
