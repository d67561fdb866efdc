"""Stores in a database, SQLite or PostgreSQL. They need SQLAlchemy, which is imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytest_wfstate.errors import MissingExtra

if TYPE_CHECKING:
    from pytest_wfstate.stores.sql.effects import SqlEffectStore
    from pytest_wfstate.stores.sql.paused import SqlPausedStore
    from pytest_wfstate.stores.sql.resume import SqlResumeStore
    from pytest_wfstate.stores.sql.runs import SqlRunStore
    from pytest_wfstate.stores.sql.snapshots import SqlSnapshotStore

__all__ = ["SqlEffectStore", "SqlPausedStore", "SqlResumeStore", "SqlRunStore", "SqlSnapshotStore"]

_HOMES = {
    "SqlEffectStore": "effects",
    "SqlPausedStore": "paused",
    "SqlResumeStore": "resume",
    "SqlRunStore": "runs",
    "SqlSnapshotStore": "snapshots",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sqlalchemy":
            raise
        raise MissingExtra(
            f"{name} needs SQLAlchemy, which is not installed: Python found no package of that name. "
            "Install it with: pip install 'pytest-wfstate[sql]'"
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
