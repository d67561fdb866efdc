"""The backends of the shipped stores: which class keeps a contract on each, and how it is opened.

The plugin imports this when pytest starts, so no store is imported before one is opened.
"""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """One backend: its module in `pytest_wfstate.stores`, and what the names of its classes start with."""

    module: str
    prefix: str
    has_folder: bool = False
    schemes: tuple[str, ...] = ()
    """What the URL of its server may start with. Empty if it needs no server."""
    keeps_all: bool = False
    """Whether it keeps every contract, or only those of workflows."""

    def open(self, kind: str, home: Path, url: str = "") -> Any:
        """Open a store, such as the kind `Paused`, in the folder `home`, or under its name on the server at `url`."""
        store = getattr(importlib.import_module(f"pytest_wfstate.stores.{self.module}"), f"{self.prefix}{kind}Store")
        if self.schemes:
            return store(url, prefix=home.name)
        if self.module == "sql":
            return store(f"sqlite:///{home}/state.db")
        return store(home) if self.has_folder else store()


GENERIC = ("history", "queue", "lock")
"""The contracts that are not about workflows."""

BACKENDS = {
    "memory": Backend("memory", "Memory", keeps_all=True),
    "file": Backend("file", "File", has_folder=True, keeps_all=True),
    "sqlite": Backend("sql", "Sql", has_folder=True),
    "postgres": Backend("sql", "Sql", schemes=("postgresql", "postgresql+psycopg")),
    "redis": Backend("redis", "Redis", schemes=("redis", "rediss", "unix")),
}
