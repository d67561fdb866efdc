"""The file of a SQLite database: who may read it, and what happens if it is removed or replaced while it is open."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from pytest_wfstate import (
    LostConnection,
    SqlPausedStore,
    SqlResumeStore,
    SqlSnapshotStore,
    UnsafeFile,
    as_sync,
    samples,
)
from pytest_wfstate.stores.sql.sqlite import SqliteTransaction
from pytest_wfstate.stores.sql.sqlite_file import _unchanging
from tests.unit.stores.sql.engines import POINT, engine_of
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


def test_a_link_to_a_file_that_is_not_there_yet_leads_to_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "state.db").symlink_to(tmp_path / "new" / "elsewhere.db")
    with SqlResumeStore(f"sqlite:///{tmp_path}/state.db") as store:
        store.save(POINT)
        assert (mode(tmp_path / "new"), mode(tmp_path / "new" / "elsewhere.db")) == (0o700, 0o600)


PLANT: dict[str, Callable[[Path, Path], None]] = {
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "device": lambda path, _: path.symlink_to("/dev/null"),
    "symbolic link": lambda path, victim: path.symlink_to(victim),
    "hard link": lambda path, victim: path.hardlink_to(victim),
}
PLANTED = [("", kind) for kind in ("pipe", "folder", "device", "hard link")]  # where a link leads is the user's choice
PLANTED += [(suffix, kind) for suffix in ("-journal", "-wal", "-shm") for kind in PLANT if kind != "device"]


@pytest.mark.parametrize(("suffix", "kind"), PLANTED)
def test_what_was_planted_in_the_place_of_a_file_is_refused(on_sqlite: Place, suffix: str, kind: str) -> None:
    """SQLite would wait for the other end of a pipe, and write into what a link leads to."""
    file = file_of(on_sqlite)
    with on_sqlite.open(SqlResumeStore) as store:
        store.save(POINT)
    victim = file.with_name("victim")
    shutil.copy(file, victim)
    before = victim.read_bytes()
    planted = Path(f"{file}{suffix}")
    planted.unlink(missing_ok=True)
    PLANT[kind](planted, victim)
    what = "the file has 2 names" if kind == "hard link" else f"there is a {kind} where the store keeps a regular file"
    with on_sqlite.open(SqlResumeStore) as store:
        with pytest.raises(UnsafeFile, match=what) as error:
            store.save(POINT)
        assert error.value.filename == str(planted)
        assert victim.read_bytes() == before
        planted.rmdir() if kind == "folder" else planted.unlink()
        store.save(POINT)
        assert store.load("a") == POINT


def test_a_link_to_a_database_is_followed(on_sqlite: Place) -> None:
    with on_sqlite.open(SqlResumeStore) as store:
        store.save(POINT)
    link = file_of(on_sqlite).with_name("link.db")
    link.symlink_to(file_of(on_sqlite))
    with Place(f"sqlite:///{link}", on_sqlite.prefix).open(SqlResumeStore) as store:
        assert store.load("a") == POINT


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
    said = ["was removed while a store had it open. Nothing was changed"] * 2
    if name != "load":  # noticed after the change; the connection is closed then, so the next call makes none
        said[0] = "was removed or replaced while a store had it open. The change that was just made is not"
    for what in said:
        with pytest.raises(LostConnection, match=rf"state\.db {re.escape(what)}"):
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
    said = ["was replaced by another file while a store had it open. Nothing was changed"] * 2
    if name != "load":
        said[0] = "was removed or replaced while a store had it open. The change that was just made is not"
    for what in said:
        with pytest.raises(LostConnection, match=rf"state\.db {re.escape(what)}"):
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


def replace(file: Path) -> None:
    """Put an empty database where another one is, as a restored backup would be."""
    new = file.with_name("new.db")
    sqlite3.connect(new).execute("VACUUM").connection.close()
    os.replace(new, file)
    for name in ("state.db-wal", "state.db-shm"):
        file.with_name(name).unlink(missing_ok=True)


def use(engine: Engine) -> None:
    """Use an engine as an application does. It keeps the connections, with the write-ahead log open."""
    with engine.begin() as one, engine.begin() as other:
        one.exec_driver_sql("PRAGMA journal_mode=WAL")
        one.exec_driver_sql("CREATE TABLE theirs (a)")
        other.exec_driver_sql("SELECT 1")


@pytest.mark.parametrize("is_first_used_by", ["application", "store"])
def test_a_store_uses_the_file_that_is_there_whatever_a_users_engine_has_open(
    on_sqlite: Place, is_first_used_by: str
) -> None:
    engine, file = on_sqlite.engine(), file_of(on_sqlite)
    if is_first_used_by == "store":
        SqlResumeStore(engine, prefix=on_sqlite.prefix).save(samples.resume_point("b"))
    use(engine)
    replace(file)

    store = SqlResumeStore(engine, prefix=on_sqlite.prefix)
    store.save(POINT)

    with on_sqlite.open(SqlResumeStore) as other:
        assert other.load("a") == POINT
    assert store.load("a") == POINT
    engine.dispose()


def test_a_store_on_a_users_engine_is_closed_once_to_use_the_file_that_is_there(on_sqlite: Place) -> None:
    engine, file = on_sqlite.engine(), file_of(on_sqlite)
    store = SqlResumeStore(engine, prefix=on_sqlite.prefix)
    store.save(POINT)
    use(engine)
    replace(file)
    with pytest.raises(LostConnection, match="was replaced by another file"):
        store.load("a")

    store.close()

    assert store.load("a") is None
    store.save(POINT)
    with on_sqlite.open(SqlResumeStore) as other:
        assert other.load("a") == POINT
    engine.dispose()


@pytest.mark.parametrize("own", [True, False])
def test_a_file_that_is_replaced_while_the_first_connection_is_made_is_noticed(
    on_sqlite: Place, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, file = on_sqlite.engine(), file_of(on_sqlite)
    file.touch()
    store: Any = SqlResumeStore(on_sqlite.url if own else engine, prefix=on_sqlite.prefix)
    connect = engine_of(store).dialect.loaded_dbapi.connect

    def replaced_meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        connection = connect(*args, **options)
        replace(file)
        return connection

    monkeypatch.setattr(engine_of(store).dialect.loaded_dbapi, "connect", replaced_meanwhile)
    with pytest.raises(LostConnection, match="was replaced by another file"):
        store.save(POINT)
    store.save(POINT)
    with on_sqlite.open(SqlResumeStore) as other:
        assert other.load("a") == POINT
    store.close()
    engine.dispose()


CHANGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "save": (SqlResumeStore, lambda store: store.save(POINT)),
    "delete": (SqlResumeStore, lambda store: store.delete("a")),
    "claim": (SqlPausedStore, lambda store: store.claim("a")),
    "complete": (SqlPausedStore, lambda store: store.complete("b")),
    "recover": (SqlPausedStore, lambda store: store.recover_orphaned()),
    "drop": (SqlResumeStore, lambda store: store.drop()),
}


@pytest.mark.parametrize("name", list(CHANGES))
@pytest.mark.parametrize("lost", ["file", "log"])
@pytest.mark.parametrize("own", [True, False])
def test_a_change_is_not_acknowledged_if_its_file_or_log_is_lost_while_it_waits(
    on_sqlite: Place, name: str, lost: str, own: bool
) -> None:
    kind, change = CHANGES[name]
    engine, file = on_sqlite.engine(), file_of(on_sqlite)
    store = kind(on_sqlite.url if own else engine, prefix=on_sqlite.prefix)
    if kind is SqlPausedStore:
        store.save(samples.paused("b"))
        store.claim("b")
        store.save(samples.paused("a"))
    store.load("a")
    run = SqliteTransaction.run

    def lost_meanwhile(transaction: Any, statements: Any) -> Any:
        """Lose it just before a change, as another program could."""
        if any(text.startswith(("BEGIN", "INSERT", "DELETE", "UPDATE")) for text in texts(statements)):
            patch.undo()
            replace(file) if lost == "file" else file.with_name("state.db-wal").unlink()
        return run(transaction, statements)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteTransaction, "run", lost_meanwhile)
        what = r"the database file .*state\.db" if lost == "file" else r"the write-ahead log .*state\.db-wal"
        with pytest.raises(
            LostConnection, match=rf"^{what} was removed or replaced while a store had it open. The change"
        ):
            change(store)
    store.close()
    engine.dispose()


@pytest.mark.parametrize("has", ["O_PATH", "no O_PATH", "no /proc"])
def test_a_lost_log_is_noticed_on_every_system(on_sqlite: Place, has: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if has == "no O_PATH":
        monkeypatch.delattr(os, "O_PATH")
    elif has == "no /proc":
        monkeypatch.setattr(os, "readlink", lambda path: os.stat(f"{path}/missing"))
    with on_sqlite.open(SqlResumeStore) as store:
        for _ in range(2):
            store.save(POINT)
        file_of(on_sqlite).with_name("state.db-wal").unlink()
        with pytest.raises(LostConnection, match=r"write-ahead log .*state\.db-wal was removed or replaced"):
            store.save(POINT)


@pytest.mark.parametrize("what", ["its folder", "the link to its folder", "the link to it"])
def test_a_file_lost_with_what_leads_to_it_is_noticed(tmp_path: Path, what: str) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with SqlResumeStore(f"sqlite:///{tmp_path / name}/state.db"):
            pass
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "first" / "state.db" if what == "the link to it" else tmp_path / "first")
    at = {"its folder": "first/state.db", "the link to its folder": "link/state.db", "the link to it": "link"}[what]
    with SqlResumeStore(f"sqlite:///{tmp_path / at}") as store:
        for _ in range(3):
            store.save(POINT)
        if what == "its folder":
            (tmp_path / "first").rename(tmp_path / "old")
            (tmp_path / "second").rename(tmp_path / "first")
        else:
            leads_to = os.readlink(link).replace("first", "second")
            link.unlink()
            link.symlink_to(leads_to)
        with pytest.raises(LostConnection, match=r"was (removed|replaced)"):
            store.save(POINT)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock that shows the kernel's ticks")
def test_a_folder_that_looks_unchanged_has_the_names_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for n in range(1_000):
        (tmp_path / str(n)).touch()
        seen.append(_unchanging(str(tmp_path)))
    known = [folder for folder in seen if folder is not None]
    assert len(known) == len(set(known))
    changed = tmp_path.stat().st_ctime_ns
    for tick, is_known in ((changed, False), (changed + 1, True)):
        monkeypatch.setattr(time, "clock_gettime_ns", lambda _, tick=tick: tick)
        assert (_unchanging(str(tmp_path)) is not None) == is_known


def test_a_store_that_is_closed_has_no_file_open(on_sqlite: Place) -> None:
    with on_sqlite.open(SqlResumeStore) as store:
        store.save(POINT)
        assert descriptors(file_of(on_sqlite).parent)
    assert descriptors(file_of(on_sqlite).parent) == []


def descriptors(folder: Path) -> list[str]:
    """Return what this process has open in a folder."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [target for link in links if (target := os.path.realpath(link)).startswith(f"{folder}/")]


def texts(statements: Any) -> list[str]:
    return [one if isinstance(one, str) else one[0].named(one[1])[0] for one in statements]


def test_a_claim_that_went_into_a_lost_file_may_be_there_when_the_file_is_put_back(on_sqlite: Place) -> None:
    file = file_of(on_sqlite)
    store = on_sqlite.open(SqlPausedStore)
    store.save(samples.paused("a"))
    check = store._database.dialect.check

    def moved(*args: Any, writes: bool) -> None:
        if writes:
            os.rename(file, file.with_name("moved.db"))
        check(*args, writes=writes)

    store._database.dialect.check = moved
    with pytest.raises(LostConnection, match="unless its old files are put back"):
        store.claim("a")
    store._database.dialect.check = check
    os.rename(file.with_name("moved.db"), file)

    store.complete("a")

    assert store.recover_orphaned() == 0
    assert store.list() == []
    store.close()


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
