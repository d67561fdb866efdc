"""Engines: turn what the user says about a database into an engine that a store can rely on."""

from __future__ import annotations

import functools
import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from pytest_wfstate.errors import MissingExtra, UnusableDatabase
from pytest_wfstate.stores.passwords import hide_passwords

DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
"""The databases that can hold a store, and their drivers."""
LONGEST_WAIT = 20.0
"""How many seconds a change waits for others, unless the database is configured otherwise."""
# Detect a vanished server within about a minute. Linux would take two hours.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
# Looking for the type hstore takes a transaction of several messages, and no store uses it.
_OPTIONS: Mapping[str, Any] = defaultdict(dict, postgresql={"use_native_hstore": False})
_EXAMPLES = "sqlite:///folder/state.db or postgresql://user@host/database"


def open_engine(where: str | URL | Engine) -> tuple[Engine, bool]:
    """Return the engine of a URL, or the one passed in, and whether it was made here.

    Raises:
        UnusableDatabase: it cannot hold a store.
        MissingExtra: its driver is not installed.

    """
    is_own = not isinstance(where, Engine)
    engine = where if isinstance(where, Engine) else _made(where)
    _check(engine)
    return engine, is_own


def shown(engine: Engine) -> str:
    """Return the URL of an engine without passwords."""
    return _shown(engine.url)


def said(error: BaseException | None) -> str:
    """Return a driver's message on one line, without passwords."""
    return hide_passwords(" ".join(str(error).split()).rstrip("."))


def _shown(url: URL) -> str:
    return hide_passwords(url.render_as_string(hide_password=True))


def _made(where: str | URL) -> Engine:
    url = _parsed(where)
    _check_lasts(url)
    if url.get_backend_name() == "postgresql" and "+" not in url.drivername:
        url = url.set(drivername="postgresql+psycopg")
    elif url.get_backend_name() == "sqlite" and not str(url.database).startswith("file:"):
        url = url.set(database=os.path.abspath(str(url.database)))  # also after the process changes its folder
    model = _model(url)
    return Engine(model.pool.recreate(), model.dialect, url, hide_parameters=True)


@functools.lru_cache(maxsize=16)
def _model(url: URL) -> Engine:
    """Make an engine that never connects, and whose dialect all engines of this URL share.

    Making it takes longer than everything else a new handle does. It has no pool: handles keep their connections.
    """
    try:
        return create_engine(url, connect_args=_arguments(url), poolclass=NullPool, **_OPTIONS[url.get_backend_name()])
    except NoSuchModuleError:
        raise _unusable(_shown(url), "SQLAlchemy does not know that database") from None
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{_shown(url)} needs {error.name}, which is not installed: Python found no package of that "
            "name. Install it with: pip install 'pytest-wfstate[postgres]'"
        ) from None


def _arguments(url: URL) -> dict[str, Any]:
    # Transactions begin explicitly.
    if url.get_backend_name() == "sqlite":
        return {"isolation_level": None, **_defaults({"timeout": LONGEST_WAIT}, url)}
    return {"autocommit": True, "prepare_threshold": _prepare_threshold(url), **_defaults(_KEEPALIVES, url)}


def _prepare_threshold(url: URL) -> int | None:
    """Return after how many executions psycopg prepares a statement: never, unless the URL says so.

    A prepared statement has a name, and behind a pooler that shares sessions, such as pgbouncer in transaction mode,
    the name may mean another client's statement.
    """
    given = url.query.get("prepare_threshold", "none")
    if str(given).lower() == "none":
        return None
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    raise _unusable(_shown(url), f"its prepare_threshold is {given!r}, neither a whole number nor none")


def _defaults(arguments: Mapping[str, float], url: URL) -> dict[str, float]:
    """Return the arguments that a URL does not set itself."""
    return {name: value for name, value in arguments.items() if name not in url.query}


def _parsed(where: object) -> URL:
    if not isinstance(where, str | URL):
        raise _unusable(repr(where), f"it is a {type(where).__name__}, neither a URL nor an engine")
    try:
        return make_url(where)
    except ArgumentError:
        raise _unusable(repr(hide_passwords(str(where))), "it is not a URL") from None


def _check(engine: Engine) -> None:
    backend, driver = engine.dialect.name, engine.dialect.driver
    if DRIVERS.get(backend) != driver:
        raise _unusable(shown(engine), f"its driver is {backend}+{driver}")
    if backend == "sqlite" and sqlite3.sqlite_version_info < (3, 35):
        raise _unusable(shown(engine), f"this Python has SQLite {sqlite3.sqlite_version}, which lacks RETURNING")
    _check_lasts(engine.url)


def _check_lasts(url: URL) -> None:
    is_in_memory = url.database in (None, "", ":memory:") or "memory" in url.query.get("mode", "")
    if url.get_backend_name() == "sqlite" and is_in_memory:
        # Each connection would have a database of its own, which ends with the connection.
        raise _unusable(_shown(url), "it is in memory, so nothing would last")


def _unusable(where: str, why: str) -> UnusableDatabase:
    return UnusableDatabase(
        f"{where} cannot hold a store: {why}. Stores support SQLite 3.35 or later with Python's own driver, and "
        f"PostgreSQL with psycopg 3. Use a URL such as {_EXAMPLES}, or an engine made from one."
    )
