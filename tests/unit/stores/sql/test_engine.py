"""Engines: which databases a store can be in, and what it says of others."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import Pool, SingletonThreadPool, StaticPool

from pytest_wfstate import MissingExtra, SqlResumeStore, UnusableDatabase, samples
from tests.unit.stores.sql.places import Place

POINT = samples.resume_point("a")


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("sqlite://", "it is in memory, so nothing would last"),
        ("sqlite:///:memory:", "it is in memory"),
        ("sqlite:///file:x?mode=memory&cache=shared&uri=true", "it is in memory"),
        ("sqlite+aiosqlite:///x.db", r"its driver is sqlite\+aiosqlite"),
        ("nosuch://x", "its driver is nosuch"),
        ("mysql://x", "its driver is mysql"),
        ("postgresql+psycopg2://x", r"its driver is postgresql\+psycopg2"),
        ("sqlite:///x.db?timeout=soon", r"sqlite:////.*/x.db\?timeout=soon cannot .*an option after its \? has"),
        ("sqlite:///x.db?timeout=1&timeout=2", r"an option after its \? has an invalid value"),
        ("postgresql://h1:1/x?host=h1&host=h2&port=1&port=2&port=3", r"an option after its \? has an invalid value"),
        ("sqlite:///x\0.db", "its database has a NUL in its name"),
        ("postgresql://host:5x/base", "it is not a URL"),
        ("./state.db", r"'\./state\.db' cannot hold a store: it is not a URL"),
        (Path("state.db"), "it is a PosixPath, neither a URL nor an engine"),
        (None, "it is a NoneType"),
    ],
)
def test_a_database_that_cannot_hold_a_store_is_refused(where: Any, why: str) -> None:
    with pytest.raises(UnusableDatabase, match=why) as raised:
        SqlResumeStore(where)
    assert "Stores support SQLite 3.35" in str(raised.value)
    assert "Use a URL such as sqlite:///folder/state.db" in str(raised.value)


def test_an_engine_in_memory_is_refused() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with pytest.raises(UnusableDatabase, match="in memory"):
        SqlResumeStore(engine)
    engine.dispose()


@pytest.mark.parametrize("pool", [StaticPool, SingletonThreadPool])
def test_an_engine_whose_users_share_a_connection_is_refused(place: Place, pool: type[Pool]) -> None:
    """Two threads in one connection crash the interpreter."""
    engine = place.engine(poolclass=pool)
    with pytest.raises(UnusableDatabase, match=f"its pool is a {pool.__name__}, which hands out a connection that is"):
        SqlResumeStore(engine)
    engine.dispose()


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_sqlite_database_that_is_not_in_utf_8_is_refused_and_left_alone(on_sqlite: Place, encoding: str) -> None:
    path = on_sqlite.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA encoding='{encoding}'")
        connection.execute("CREATE TABLE theirs (a)")
    before = Path(path).read_bytes()
    with on_sqlite.open(SqlResumeStore) as store:
        for call in (store.load, store.delete):
            with pytest.raises(UnusableDatabase, match=f"its encoding is {encoding}, not UTF-8"):
                call("a")
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "WIN1252"])
@pytest.mark.parametrize("own", [True, False])
def test_a_postgres_database_that_is_not_in_utf_8_is_refused(on_postgres: Place, encoding: str, own: bool) -> None:
    name = f"db_{on_postgres.prefix}"
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        kind = f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(f"CREATE DATABASE {name} {kind}")
    url = make_url(on_postgres.url).set(database=name, drivername="postgresql+psycopg")
    engine = create_engine(url)
    with SqlResumeStore(url if own else engine) as store:
        for call in (store.load, store.delete):
            with pytest.raises(UnusableDatabase, match=f"encoding .* {encoding}.* Use a URL such as"):
                call("a")
    engine.dispose()
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("own", [True, False])
def test_connections_to_postgres_that_are_not_in_utf_8_are_refused(on_postgres: Place, own: bool) -> None:
    engine = on_postgres.engine(connect_args={"client_encoding": "latin1"})
    where: Any = f"{on_postgres.url}?client_encoding=latin1" if own else engine
    with (
        SqlResumeStore(where, prefix=on_postgres.prefix) as store,
        pytest.raises(UnusableDatabase, match=r"that of its connections is LATIN1.* leave out client_encoding"),
    ):
        store.load("a")
    engine.dispose()


def test_the_encoding_in_the_environment_does_not_matter(on_postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    point = samples.resume_point("日本", scope_snapshot={"key": "日本"})
    with on_postgres.open(SqlResumeStore) as store:
        store.save(point)
        assert store.load("日本") == point


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(UnusableDatabase, match="which lacks RETURNING"):
        SqlResumeStore(f"sqlite:///{tmp_path}/state.db")


def test_a_url_object_will_do(tmp_path: Path) -> None:
    with SqlResumeStore(make_url(f"sqlite:///{tmp_path}/state.db")) as store:
        store.save(POINT)
    assert (tmp_path / "state.db").exists()


def test_a_missing_driver_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"needs psycopg.*pip install 'pytest-wfstate\[postgres\]'"):
        SqlResumeStore("postgresql://host/without-driver")


def test_the_folder_of_a_file_is_made_and_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    with SqlResumeStore(f"sqlite:///{tmp_path}/new/folder/state.db") as store:
        assert store.load("a") is None
        assert synced[:3] == [tmp_path / "new" / "folder", tmp_path / "new", tmp_path]
        synced.clear()
        store.save(POINT)
        with SqlResumeStore(f"sqlite:///{tmp_path}/new/folder/state.db") as again:
            assert again.load("a") == POINT
    assert synced == []


def test_a_folder_above_that_may_not_be_read_ends_the_way_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def guarded(path: Any, *args: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args)

    monkeypatch.setattr(os, "open", guarded)
    with SqlResumeStore(f"sqlite:///{tmp_path}/new/state.db") as store:
        store.save(POINT)
        assert store.load("a") == POINT


def test_a_relative_file_is_where_the_process_is(tmp_path: Path) -> None:
    code = (
        "from pytest_wfstate import SqlResumeStore, samples\n"
        "with SqlResumeStore('sqlite:///sub/state.db') as store: store.save(samples.resume_point('a'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    assert (tmp_path / "sub" / "state.db").exists()


def test_a_store_shows_where_it_is(tmp_path: Path) -> None:
    assert repr(SqlResumeStore(f"sqlite:///{tmp_path}/x.db")) == f"SqlResumeStore('sqlite:///{tmp_path}/x.db')"
