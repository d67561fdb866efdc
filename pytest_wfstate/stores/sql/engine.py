"""Engines: where a database is, as the user says it, made into connections that a store can be sure of."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from pytest_wfstate.errors import MissingExtra, UnusableDatabase

DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
"""The databases that a store can be in, and by what they are reached."""
LONGEST_WAIT = 20.0
"""For how many seconds a change waits for others, unless the database was told otherwise."""
# A server that is gone without a word is noticed in a minute or so. Linux would take two hours.
_NOTICE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_EXAMPLES = "sqlite:///folder/state.db or postgresql://user@host/database"


def open_engine(where: str | URL | Engine) -> tuple[Engine, bool]:
    """Give the engine of a URL, or the one given, and tell whether it was made here.

    Raises:
        UnusableDatabase: it is none that a store can be in.
        MissingExtra: its driver is not installed.

    """
    is_own = not isinstance(where, Engine)
    engine = where if isinstance(where, Engine) else _made(where)
    _check(engine)
    return engine, is_own


def shown(engine: Engine) -> str:
    """Write the URL of an engine without its password."""
    return engine.url.render_as_string(hide_password=True)


def _made(where: str | URL) -> Engine:
    url = _parsed(where)
    _check_lasts(url)
    if url.get_backend_name() == "postgresql" and "+" not in url.drivername:
        url = url.set(drivername="postgresql+psycopg")
    model = _model(url)
    return Engine(model.pool.recreate(), model.dialect, url)


@functools.lru_cache(maxsize=16)
def _model(url: URL) -> Engine:
    """Make an engine that never connects, and whose dialect others of this URL share.

    To make it takes longer than all else that a new handle does. It pools nothing: a handle keeps connections itself.
    """
    try:
        return create_engine(url, connect_args=_arguments(url), poolclass=NullPool)
    except NoSuchModuleError:
        raise _unusable(url.render_as_string(), "SQLAlchemy knows no such database") from None
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{url.render_as_string()} needs {error.name}, which is not installed. It was looked for where Python "
            "looks for packages. Install it with: pip install 'pytest-wfstate[postgres]'"
        ) from None


def _arguments(url: URL) -> dict[str, Any]:
    # Transactions begin when a store says so.
    if url.get_backend_name() == "sqlite":
        return {"isolation_level": None, **_unsaid({"timeout": LONGEST_WAIT}, url)}
    return {"autocommit": True, **_unsaid(_NOTICE, url)}


def _unsaid(arguments: Mapping[str, float], url: URL) -> dict[str, float]:
    """Give those of some arguments that a URL says nothing of."""
    return {name: value for name, value in arguments.items() if name not in url.query}


def _parsed(where: object) -> URL:
    if not isinstance(where, str | URL):
        raise _unusable(repr(where), f"it is of type {type(where).__name__}, neither a URL nor an engine")
    try:
        return make_url(where)
    except ArgumentError:
        raise _unusable(repr(where), "it is no URL") from None


def _check(engine: Engine) -> None:
    backend, driver = engine.dialect.name, engine.dialect.driver
    if DRIVERS.get(backend) != driver:
        raise _unusable(shown(engine), f"it is reached by {backend}+{driver}")
    if backend == "sqlite" and sqlite3.sqlite_version_info < (3, 35):
        raise _unusable(shown(engine), f"this Python has SQLite {sqlite3.sqlite_version}, which has no RETURNING")
    _check_lasts(engine.url)


def _check_lasts(url: URL) -> None:
    is_in_memory = url.database in (None, "", ":memory:") or "memory" in url.query.get("mode", "")
    if url.get_backend_name() == "sqlite" and is_in_memory:
        # Each connection would have a database of its own, which is gone when the connection is.
        raise _unusable(url.render_as_string(), "it is in memory, where nothing lasts")


def _unusable(where: str, why: str) -> UnusableDatabase:
    return UnusableDatabase(
        f"a store cannot be in {where}: {why}. Stores were tried on SQLite from 3.35 on, with Python's own driver, "
        f"and on PostgreSQL, with psycopg 3. Give a URL such as {_EXAMPLES}, or an engine of one."
    )
