"""The file of a SQLite database: who may read it, and what happens if it is removed or replaced while it is open."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import LostConnection, SqlPausedStore, SqlResumeStore, SqlSnapshotStore, as_sync, samples
from tests.unit.stores.sql.engines import POINT
from tests.unit.stores.sql.places import Place


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(
    ("given", "file", "folder"),
    [
        ({}, 0o600, 0o700),
        ({"mode": 0o600}, 0o600, 0o700),
        ({"mode": 0o660}, 0o660, 0o770),
        ({"mode": 0o644}, 0o644, 0o755),
    ],
)
def test_files_and_folders_are_private_unless_the_user_says_otherwise(
    tmp_path: Path, given: dict[str, Any], file: int, folder: int
) -> None:
    with SqlResumeStore(f"sqlite:///{tmp_path}/new/folder/state.db", **given) as store:
        store.save(POINT)
        files = sorted((tmp_path / "new" / "folder").iterdir())
        assert [path.name for path in files] == ["state.db", "state.db-shm", "state.db-wal"]
        assert {mode(path) for path in files} == {file}
        assert {mode(tmp_path / "new"), mode(tmp_path / "new" / "folder")} == {folder}


@pytest.mark.parametrize("kind", [SqlPausedStore, SqlResumeStore, SqlSnapshotStore])
def test_every_store_takes_a_mode(on_sqlite: Place, kind: Any) -> None:
    with as_sync(on_sqlite.open(kind, mode=0o640)) as store:
        store.drop()
    assert mode(Path(on_sqlite.url.removeprefix("sqlite:///"))) == 0o640


def test_a_file_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    os.chmod(tmp_path / "state.db", 0o664)
    before = mode(tmp_path)
    with SqlResumeStore(f"sqlite:///{tmp_path}/state.db") as store:
        store.save(POINT)
    assert (mode(tmp_path / "state.db"), mode(tmp_path)) == (0o664, before)


def test_a_uri_of_sqlite_leads_to_a_private_file_too(tmp_path: Path) -> None:
    with SqlResumeStore(f"sqlite:///file:{tmp_path}/new/a%20b.db?uri=true") as store:
        store.save(POINT)
        assert mode(tmp_path / "new" / "a b.db") == 0o600


@pytest.mark.parametrize("given", [0o400, 0o700, 0o1600, -1, 0o066, "0600", True, 0.5])
def test_an_invalid_mode_is_refused(on_sqlite: Place, given: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a valid mode.* Use one such as 0o600"):
        on_sqlite.open(SqlResumeStore, mode=given)


def test_a_mode_is_refused_where_there_is_no_file(on_postgres: Place) -> None:
    with pytest.raises(ValueError, match=r"mode=384 was given for postgresql.*which is not a file.* Leave it out"):
        on_postgres.open(SqlResumeStore, mode=0o600)


# A file that is not there any more

CALLS: dict[str, Callable[[Any], Any]] = {
    "save": lambda store: store.save(POINT),
    "load": lambda store: store.load("a"),
    "delete": lambda store: store.delete("a"),
}


def file_of(place: Place) -> Path:
    return Path(place.url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_on_a_file_that_was_removed_is_refused_until_the_store_is_closed(on_sqlite: Place, name: str) -> None:
    store = on_sqlite.open(SqlResumeStore)
    store.save(POINT)
    for path in file_of(on_sqlite).parent.glob("state.db*"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(LostConnection, match=r"state\.db was removed while a store had it open\. Nothing was"):
            CALLS[name](store)
    store.close()
    assert store.load("a") is None
    store.save(POINT)
    assert store.load("a") == POINT
    store.close()


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_on_a_file_that_was_replaced_is_refused_until_the_store_is_closed(on_sqlite: Place, name: str) -> None:
    file = file_of(on_sqlite)
    with on_sqlite.open(SqlResumeStore) as first:
        first.save(samples.resume_point("a", step=1))
    shutil.copy(file, file.with_name("backup.db"))
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("a", step=2))
    os.replace(file.with_name("backup.db"), file)
    for _ in range(2):
        with pytest.raises(LostConnection, match=r"state\.db was replaced by another file while a store had it open"):
            CALLS[name](store)
    store.close()
    for name in ("state.db-wal", "state.db-shm"):
        file.with_name(name).unlink(missing_ok=True)
    assert store.load("a").step == 1
    store.close()


def test_a_file_that_is_put_back_is_used_again(on_sqlite: Place) -> None:
    store, file = on_sqlite.open(SqlResumeStore), file_of(on_sqlite)
    store.save(POINT)
    os.rename(file, file.with_name("moved.db"))
    with pytest.raises(LostConnection, match="was removed"):
        store.load("a")
    os.rename(file.with_name("moved.db"), file)
    assert store.load("a") == POINT
    store.close()


def test_a_connection_that_a_users_engine_kept_is_checked_by_the_next_store(on_sqlite: Place) -> None:
    engine, file = on_sqlite.engine(), file_of(on_sqlite)
    SqlResumeStore(engine, prefix=on_sqlite.prefix).save(POINT)
    shutil.copy(file, file.with_name("backup.db"))
    os.replace(file.with_name("backup.db"), file)
    with pytest.raises(LostConnection, match="was replaced by another file"):
        SqlResumeStore(engine, prefix=on_sqlite.prefix).save(POINT)
    engine.dispose()


def test_a_store_stays_where_it_is_when_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with SqlResumeStore("sqlite:///state.db") as store:
            store.save(samples.resume_point(name))
            monkeypatch.chdir(tmp_path)
            assert store.load(name) is not None
        assert (tmp_path / name / "state.db").exists()
    assert not (tmp_path / "state.db").exists()
