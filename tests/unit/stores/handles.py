"""Handles on the same storage, and what a call on one returns."""

from __future__ import annotations

import inspect
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import pytest_wfstate
from pytest_wfstate import WfstateError
from pytest_wfstate.contracts.records import Record

EVERY_BACKEND = ["memory", "file", "sqlite"]
"""Those that need no server. The suites hold the others to the same contracts."""


@dataclass
class Home:
    """Where the stores of one test keep their state."""

    backend: str
    protocol: str
    path: Path
    memory: Any = None

    def open(self) -> Any:
        """Open another handle, as a second worker or a restarted one would."""
        if self.backend == "memory":
            self.memory = self.memory or getattr(pytest_wfstate, f"Memory{self.protocol}")()
            return self.memory.handle()
        if self.backend == "file":
            return getattr(pytest_wfstate, f"File{self.protocol}")(self.path / "store", "process")
        return getattr(pytest_wfstate, f"Sql{self.protocol}")(f"sqlite:///{self.path}/state.db")

    def has_marker(self, run_id: str) -> bool:
        """Look behind the contract, which does not show the marker of a run that is paused as well."""
        if self.backend == "memory":
            return run_id in self.memory._runs and self.memory._runs[run_id].claim is not None
        if self.backend == "file":
            return (self.path / "store" / f"{run_id}.inflight").exists()
        with closing(sqlite3.connect(self.path / "state.db")) as database:
            query = "SELECT count(inflight) FROM wfstate_paused WHERE run = ?"
            return bool(database.execute(query, [run_id]).fetchone()[0])


def outcome(store: Any, method: str, *args: Any) -> Any:
    """Make a call and return its result as JSON, or the class of the refusal."""
    try:
        return plain(call(store, method, *args))
    except (WfstateError, ValidationError) as refusal:
        return type(refusal)


def call(store: Any, method: str, *args: Any) -> Any:
    """Call a sync or async method in this thread: switching threads would take longer than everything else."""
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
    """Convert a result to JSON: equal records may still differ in it, as 0 and False do."""
    if isinstance(result, list):
        return [plain(item) for item in result]
    return result.to_json() if isinstance(result, Record) else result
