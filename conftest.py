"""Configuration of this project's own tests."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os

import pytest

from pytest_wfstate.faults.disk.home import memory_home

pytest_plugins = ["pytester"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the folders of tests in memory, and let the many Pythons that tests start keep what they compile.

    Stores sync thousands of times, and what tests show of them does not hang on the disk. An environment may tell
    Python to keep nothing that it compiles: then each that starts would compile everything.
    """
    if hasattr(config, "workerinput"):
        return
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(memory_home()).path
        config.add_cleanup(stack.pop_all().close)
    config.option.basetemp = config.option.basetemp or str(home / "tests")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what is there once all tests are collected.

    It would look through all of that again and again, and each time after a fork the pages it looks at are copied.
    """
    importlib.import_module("hypothesis.core")  # which looks at what the collector knows
    gc.collect()
    gc.freeze()
