"""Engines: turn what the user says about a database into an engine that a store can rely on."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool, SingletonThreadPool, StaticPool

from pytest_wfstate.errors import MissingExtra, UnusableDatabase
from pytest_wfstate.stores.passwords import hide_passwords
from pytest_wfstate.stores.sql.sqlite_file import watch

DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
"""The databases that can hold a store, and their drivers."""
LONGEST_WAIT = 20.0
"""How many seconds a change waits for others, unless the database is configured otherwise."""
# Detect a vanished server within about a minute. Linux would take two hours.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
# Looking for the type hstore takes a transaction of several messages, and no store uses it.
_OPTIONS: Mapping[str, Any] = defaultdict(dict, postgresql={"use_native_hstore": False})
_SAFE = re.compile(r"[\w./~-]{0,255}")  # text that can be shown: no password is told from its surroundings in it
_HIDDEN = "the text that was passed, which is not shown because it may hold a password,"
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
    if engine.dialect.name == "sqlite" and not is_own:
        watch(engine)  # ours is watched already
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
    _check_driver(_shown(url), url.drivername)
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
    engine, arguments, options = None, _arguments(url), _OPTIONS[url.get_backend_name()]
    try:
        with contextlib.suppress(ArgumentError, TypeError, ValueError):
            engine = create_engine(url, connect_args=arguments, poolclass=NullPool, **options)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{_shown(url)} needs {error.name}, which is not installed: Python found no package of that "
            "name. Install it with: pip install 'pytest-wfstate[postgres]'"
        ) from None
    if engine is None:
        raise unusable(_shown(url), "an option after its ? has an invalid value")
    if url.get_backend_name() == "sqlite":
        watch(engine)
    return engine


def _arguments(url: URL) -> dict[str, Any]:
    # Transactions begin explicitly.
    if url.get_backend_name() == "sqlite":
        return {"isolation_level": None, **_defaults({"timeout": LONGEST_WAIT}, url)}
    defaults = _defaults({**_KEEPALIVES, "client_encoding": "utf8"}, url)
    return {"autocommit": True, "prepare_threshold": _prepare_threshold(url), **defaults}


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
    raise unusable(_shown(url), f"its prepare_threshold is {given!r}, neither a whole number nor none")


def _defaults(arguments: Mapping[str, float | str], url: URL) -> dict[str, float | str]:
    """Return the arguments that a URL does not set itself."""
    return {name: value for name, value in arguments.items() if name not in url.query}


def _parsed(where: object) -> URL:
    if not isinstance(where, str | URL):
        raise unusable("what was passed", f"it is a {type(where).__name__}, neither a URL nor an engine")
    url = None
    with contextlib.suppress(ArgumentError, ValueError):  # their messages can quote a part of the password
        url = make_url(where)
    if url is None or "@" in (url.host or ""):
        raise unusable(
            repr(where) if isinstance(where, str) and _SAFE.fullmatch(where) else _HIDDEN,
            "it is not a URL. Special characters of a password, such as @ and :, have to be percent-encoded",
        )
    if "\0" in str(url.database):
        raise unusable(repr(_shown(url)), "its database has a NUL in its name")
    return url


def _check_driver(where: str, name: str) -> None:
    backend, _, driver = name.partition("+")
    if driver not in ("", DRIVERS.get(backend)) or backend not in DRIVERS:
        raise unusable(where, f"its driver is {name}")


def _check(engine: Engine) -> None:
    backend = engine.dialect.name
    _check_driver(shown(engine), f"{backend}+{engine.dialect.driver}")
    if backend == "sqlite" and sqlite3.sqlite_version_info < (3, 35):
        raise unusable(shown(engine), f"this Python has SQLite {sqlite3.sqlite_version}, which lacks RETURNING")
    _check_lasts(engine.url)
    if isinstance(engine.pool, StaticPool | SingletonThreadPool):
        # Two threads would use one connection at once, which crashes the interpreter, or a store would roll back what
        # its caller has not committed.
        kind = type(engine.pool).__name__
        raise unusable(shown(engine), f"its pool is a {kind}, which hands out a connection that is in use already")


def _check_lasts(url: URL) -> None:
    is_in_memory = url.database in (None, "", ":memory:") or "memory" in url.query.get("mode", "")
    if url.get_backend_name() == "sqlite" and is_in_memory:
        # Each connection would have a database of its own, which ends with the connection.
        raise unusable(_shown(url), "it is in memory, so nothing would last")


def unusable(where: str, why: str) -> UnusableDatabase:
    """Return the error for a database that cannot hold a store."""
    return UnusableDatabase(
        f"{where} cannot hold a store: {why}. Stores support SQLite 3.35 or later with Python's own driver, and "
        f"PostgreSQL with psycopg 3. Use a URL such as {_EXAMPLES}, or an engine made from one."
    )
