"""Both recorders at once: what Python code and SQLite do to files below home, in one log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pytest_wfstate.faults.record.recorder import Gate, Intent, Recorder
from pytest_wfstate.faults.record.sqlite_vfs import watch_sqlite


@contextlib.contextmanager
def recording(home: Path, gate: Gate | None = None, children: str = "forbid") -> Iterator[Recorder]:
    """Record what happens below `home`, asking `gate` about each op."""
    with Recorder(home, gate=gate, children=children) as recorder:
        sqlite_gate = _SqliteGate(gate, recorder.home) if gate else None
        with watch_sqlite(recorder.log, sqlite_gate) as recorder.sees_sqlite:
            yield recorder


class _SqliteGate:
    """Asks a recorder's gate about the ops of SQLite, in the words that it knows."""

    def __init__(self, gate: Gate, home: Path) -> None:
        self._gate = gate
        self._home = home

    def before(self, kind: str, path: str, size: int) -> int | None:
        """Ask about an op, if it is below home."""
        below = os.path.relpath(path, self._home)
        return None if below.startswith("..") else self._gate.before(Intent(kind, below, size=size))

    def after(self) -> None:
        """Tell that it happened."""
        self._gate.after()
