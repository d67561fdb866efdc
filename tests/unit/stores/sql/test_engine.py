"""Engines: which databases a store can be in, and what it says of others."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import StaticPool

from pytest_wfstate import MissingExtra, SqlResumeStore, UnusableDatabase, samples

POINT = samples.resume_point("a")


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("sqlite://", "it is in memory, so nothing would last"),
        ("sqlite:///:memory:", "it is in memory"),
        ("sqlite:///file:x?mode=memory&cache=shared&uri=true", "it is in memory"),
        ("sqlite+aiosqlite:///x.db", r"its driver is sqlite\+aiosqlite"),
        ("nosuch://x", "SQLAlchemy does not know that database"),
        ("state.db", "it is not a URL"),
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
