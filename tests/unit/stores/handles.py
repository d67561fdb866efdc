"""Handles on the same storage, and stores for properties that need a new one per example."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest_wfstate
from pytest_wfstate import as_sync
from pytest_wfstate.stores.file.base import FileStore
from pytest_wfstate.stores.memory.base import MemoryStore

BACKENDS = ["memory", "file"]


def another(store: Any) -> Any:
    """Open another handle on what `store` keeps, as a second worker or a restarted one would."""
    if isinstance(store, MemoryStore):
        return store.handle()
    assert isinstance(store, FileStore)
    return type(store)(store.directory, store._folder.durability)


@contextlib.contextmanager
def opened(backend: str, protocol: str) -> Iterator[Any]:
    """Open an empty store of `protocol` ("PausedStore"). It need not survive a power cut, so it is fast."""
    if backend == "memory":
        yield getattr(pytest_wfstate, f"Memory{protocol}")()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield getattr(pytest_wfstate, f"File{protocol}")(Path(folder, "home"), durability="process")


@contextlib.contextmanager
def opened_sync(backend: str, protocol: str) -> Iterator[Any]:
    """Open an empty store whose methods block."""
    with opened(backend, protocol) as store:
        yield as_sync(store)
