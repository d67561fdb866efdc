"""Handles on the same storage, stores for properties that need a new one per example, and what a call comes to."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import pytest_wfstate
from pytest_wfstate import WfstateError, as_sync
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.stores.file.base import FileStore
from pytest_wfstate.stores.file.folder import Durability
from pytest_wfstate.stores.memory.base import MemoryStore

BACKENDS = ["memory", "file"]


def another(store: Any, durability: Durability | None = None) -> Any:
    """Open another handle on what `store` keeps, as a second worker or a restarted one would."""
    if isinstance(store, MemoryStore):
        return store.handle()
    assert isinstance(store, FileStore)
    return type(store)(store.directory, durability or store._folder.durability)


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


def outcome(store: Any, method: str, *args: Any) -> Any:
    try:
        return plain(call(store, method, *args))
    except (WfstateError, ValidationError) as refusal:
        return type(refusal)


def call(store: Any, method: str, *args: Any) -> Any:
    """Call a method of either colour in this thread: a switch of threads takes longer than all else."""
    blocking = inspect.unwrap(getattr(type(store), method))
    result = blocking(store, *args)
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)  # in memory there is nothing to wait for
    except StopIteration as done:
        return done.value
    raise AssertionError(f"{method} waits for something")


def plain(result: Any) -> Any:
    """Make JSON of a result: records that are equal may still differ in it, as 0 and False do."""
    if isinstance(result, list):
        return [plain(one) for one in result]
    return result.to_json() if isinstance(result, Record) else result
