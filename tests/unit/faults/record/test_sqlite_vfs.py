from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy

from pytest_wfstate.faults.record import sqlite_abi, sqlite_vfs
from pytest_wfstate.faults.record.sqlite_vfs import is_rebuilt, watch_sqlite
from pytest_wfstate.faults.trace.log import Log
from pytest_wfstate.faults.trace.ops import HOME, OPS, Ack, Allocate, Create, Fsync, Item, Trace, Unlink, replay
from tests.unit.faults.record import sqlite_workload
from tests.unit.faults.record.sqlite_workload import (
    COMMITS,
    commit,
    folder_in_memory,
    names,
    on_disk,
    put,
    replayed,
    rows,
    write_commits,
)

MODES = ["delete", "truncate", "persist", "wal"]
LEVELS = ["off", "normal", "full", "extra"]

LIBRARY: Any = next(sqlite_abi.libraries(), None)

pytestmark = pytest.mark.skipif(sqlite_vfs._wrapper() is None, reason="this interpreter's SQLite cannot be reached")


@pytest.fixture
def home() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def log(home: Path) -> Log:
    return Log(home)


def prefixes(trace: Trace) -> Iterator[tuple[int, list[Item]]]:
    """Yield each prefix that ends with an op, after the number of commits that were acknowledged in it."""
    for end, item in enumerate(trace.items, 1):
        if isinstance(item, OPS):
            prefix = trace.items[:end]
            yield sum(isinstance(item, Ack) for item in prefix), prefix


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
class TestEveryMode:
    def test_the_trace_replays_to_the_files_before_and_after_the_connection_is_closed(
        self, home: Path, log: Log, mode: str, level: str
    ) -> None:
        with watch_sqlite(log) as watching, closing(write_commits(log, home, mode, level)):
            assert watching
            assert replayed(log, home) == on_disk(home)
        assert replayed(log, home) == on_disk(home)
        assert not log.unmeasured

    def test_a_kill_after_any_op_leaves_a_prefix_of_the_commits_with_all_that_were_acknowledged(
        self, home: Path, log: Log, mode: str, level: str
    ) -> None:
        with watch_sqlite(log):
            write_commits(log, home, mode, level).close()
        trace = log.trace()
        disks = [(acked, rows(home, replay(trace.start, prefix))) for acked, prefix in prefixes(trace)]
        allowed = [list(range(count)) for count in range(COMMITS + 1)]
        assert [(acked, left) for acked, left in disks if left not in allowed[acked:]] == []
        assert len(disks) > COMMITS
        assert disks[-1][1] == allowed[-1]

    def test_syncs_are_where_the_documentation_says(self, home: Path, log: Log, mode: str, level: str) -> None:
        with watch_sqlite(log), closing(write_commits(log, home, mode, level)) as connection:
            before = len(log.items)
            commit(connection, COMMITS)
            after = len(log.items)
        known = names(log.items)
        synced = [known[item.node] for item in log.items[before:after] if isinstance(item, Fsync)]
        assert synced == SYNCS[mode, level]


_JOURNAL, _WAL, _DATABASE, _FOLDER = "a.db-journal", "a.db-wal", "a.db", "."

# sqlite.org/pragma.html#pragma_synchronous. The journal is synced a second time with its count of pages, but NORMAL
# writes that at once. A journal is opened for each commit: its name is synced after its first sync, see `unixSync`.
SYNCS = {
    ("delete", "off"): [],
    ("delete", "normal"): [_JOURNAL, _FOLDER, _DATABASE],
    ("delete", "full"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE],
    ("delete", "extra"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE, _FOLDER],
    ("truncate", "off"): [],
    ("truncate", "normal"): [_JOURNAL, _FOLDER, _DATABASE],
    ("truncate", "full"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE, _JOURNAL],
    ("truncate", "extra"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE, _JOURNAL],
    ("persist", "off"): [],
    ("persist", "normal"): [_JOURNAL, _FOLDER, _DATABASE, _JOURNAL],
    ("persist", "full"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE, _JOURNAL],
    ("persist", "extra"): [_JOURNAL, _FOLDER, _JOURNAL, _DATABASE, _JOURNAL],
    ("wal", "off"): [],
    ("wal", "normal"): [],
    ("wal", "full"): [_WAL],
    ("wal", "extra"): [_WAL],
}


def test_extra_syncs_the_folder_after_the_unlink_of_the_journal(home: Path, log: Log) -> None:
    with watch_sqlite(log):
        write_commits(log, home, "delete", "extra").close()
    *_, unlink, sync = (item for item in log.items if isinstance(item, OPS))
    assert isinstance(unlink, Unlink)
    assert isinstance(sync, Fsync)
    assert sync.node == unlink.folder


def test_a_commit_over_two_databases_replays_with_its_super_journal(home: Path, log: Log) -> None:
    with watch_sqlite(log):
        sqlite_workload.write_two_databases(home)
    assert any("-mj" in item.name for item in log.items if isinstance(item, Create))
    assert replayed(log, home) == on_disk(home)


def test_the_replay_starts_from_existing_files(home: Path) -> None:
    write_commits(Log(home), home, "delete", "full").close()
    log = Log(home)
    with watch_sqlite(log), closing(sqlite3.connect(home / "a.db")) as connection:
        commit(connection, COMMITS)
    assert not any(isinstance(item, Create) and item.name == "a.db" for item in log.items)
    assert replayed(log, home) == on_disk(home)


def test_a_rolled_back_transaction_and_a_vacuum_replay(home: Path, log: Log) -> None:
    with watch_sqlite(log), closing(write_commits(log, home, "delete", "full")) as connection:
        connection.execute("insert into t values (zeroblob(100000))")
        connection.rollback()
        connection.execute("insert into t values (zeroblob(100000))")
        connection.commit()
        connection.execute("delete from t")
        connection.commit()
        connection.execute("vacuum")
    assert replayed(log, home) == on_disk(home)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_mapped_database_that_grows_ahead_of_its_pages_replays(home: Path, log: Log, mode: str) -> None:
    with watch_sqlite(log), closing(sqlite3.connect(home / "a.db")) as connection:
        connection.execute(f"pragma journal_mode = {mode}")
        connection.execute("pragma mmap_size = 10000000")
        connection.execute("create table t (number)")
        connection.execute("insert into t values (zeroblob(1000000))")
        connection.commit()
    assert any(isinstance(item, Allocate) for item in log.items)
    assert replayed(log, home) == on_disk(home)


def test_the_rollback_of_a_hot_journal_is_recorded(home: Path, log: Log) -> None:
    with watch_sqlite(log):
        write_commits(log, home, "delete", "full").close()
    trace = log.trace()
    last = max(index for index, item in enumerate(trace.items) if isinstance(item, Unlink))
    put(home, replay(trace.start, trace.items[:last]))
    second = Log(home)
    with watch_sqlite(second), closing(sqlite3.connect(home / "a.db")) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (COMMITS - 1,)
    assert any(isinstance(item, Unlink) for item in second.items)
    assert replayed(second, home) == on_disk(home)


def test_temporary_files_without_a_name_are_not_recorded(log: Log) -> None:
    with watch_sqlite(log), closing(sqlite3.connect("")) as connection:
        connection.execute("pragma cache_size = 1")
        connection.execute("create table t (number)")
        connection.executemany("insert into t values (zeroblob(?))", [(10000,)] * 100)
        connection.commit()
    assert log.items == []
    assert not log.unmeasured


# Where in the user's code.


def save(connection: sqlite3.Connection) -> None:
    connection.execute("insert into t values (17)")
    connection.commit()


def test_each_op_has_the_line_that_caused_it(home: Path, log: Log) -> None:
    with watch_sqlite(log), closing(write_commits(log, home, "delete", "full")) as connection:
        before = len(log.items)
        save(connection)
        after = len(log.items)
    places = [(type(item), item.where and (item.where.function, item.where.text)) for item in log.items[before:after]]
    insert = "save", 'connection.execute("insert into t values (17)")'
    end = "save", "connection.commit()"
    assert places[0] == (Create, insert)
    assert places[-1] == (Unlink, end)
    assert {place for _, place in places} == {insert, end}
    assert {place for kind, place in places if kind is Fsync} == {end}


def test_each_op_has_the_line_of_its_own_thread(home: Path, log: Log) -> None:
    def work() -> None:
        with closing(sqlite3.connect(home / "a.db")) as connection:
            connection.execute("create table t (number)")

    with watch_sqlite(log):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert {item.where and item.where.function for item in log.items} == {"work"}
    assert replayed(log, home) == on_disk(home)


def test_threads_that_open_one_new_database_at_once_replay(home: Path, log: Log) -> None:
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        with closing(sqlite3.connect(home / "a.db", timeout=60)) as connection:
            connection.execute("create table if not exists t (number)")
            for _ in range(5):
                commit(connection, number)

    with watch_sqlite(log):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [item.name for item in log.items if isinstance(item, Create)].count("a.db") == 1
    assert not log.unmeasured
    assert replayed(log, home) == on_disk(home)
    assert rows(home, log.trace().end()) != []


def test_aiosqlite_is_recorded(home: Path, log: Log) -> None:
    async def work() -> None:
        async with aiosqlite.connect(home / "a.db") as connection:
            await connection.execute("pragma journal_mode = wal")
            await connection.execute("create table t (number)")
            await connection.execute("insert into t values (1)")
            await connection.commit()

    with watch_sqlite(log), asyncio.Runner() as runner:
        runner.run(work())
    assert replayed(log, home) == on_disk(home)
    assert rows(home, log.trace().end()) == [1]


def test_sqlalchemy_is_recorded(home: Path, log: Log) -> None:
    with watch_sqlite(log):
        engine = sqlalchemy.create_engine(f"sqlite:///{home}/a.db")
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("create table t (number)"))
            connection.execute(sqlalchemy.text("insert into t values (1)"))
        engine.dispose()
    assert replayed(log, home) == on_disk(home)
    assert rows(home, log.trace().end()) == [1]


# Before and after.


def default_vfs() -> Any:
    return LIBRARY.sqlite3_vfs_find(None)


def test_the_default_is_restored(log: Log) -> None:
    before = default_vfs()
    with contextlib.suppress(ZeroDivisionError), watch_sqlite(log):
        assert default_vfs() != before
        with watch_sqlite(log):
            pass
        assert default_vfs() != before
        raise ZeroDivisionError
    assert default_vfs() == before


def test_an_older_connection_is_not_recorded(home: Path) -> None:
    with closing(write_commits(Log(home), home, "delete", "full")) as connection:
        log = Log(home)
        with watch_sqlite(log):
            commit(connection, COMMITS)
    assert log.items == []
    assert replayed(log, home) != on_disk(home)


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_outlives_the_block_goes_on_working(home: Path, log: Log, mode: str) -> None:
    with watch_sqlite(log):
        connection = write_commits(log, home, mode, "full")
    with closing(connection):
        recorded = len(log.items)
        commit(connection, COMMITS)
        connection.execute("vacuum")
        connection.execute("attach ? as other", (str(home / "b.db"),))
        connection.execute("create table other.t (number)")
        connection.commit()
        assert connection.execute("select count(*) from t").fetchone() == (COMMITS + 1,)
    assert len(log.items) == recorded


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_outlives_the_block_is_recorded_in_the_next_one(home: Path, log: Log, mode: str) -> None:
    with watch_sqlite(log):
        connection = write_commits(log, home, mode, "full")
    commit(connection, COMMITS)
    home.joinpath("0").touch()  # so that no node has the same number by chance
    second = Log(home)
    with watch_sqlite(second), closing(connection):
        commit(connection, COMMITS + 1)
    assert not second.unmeasured
    assert replayed(second, home) == on_disk(home)


def test_a_journal_that_was_opened_between_two_blocks_is_recorded_in_the_second(home: Path, log: Log) -> None:
    with watch_sqlite(log):
        connection = sqlite3.connect(home / "a.db")
        connection.execute("pragma locking_mode = exclusive")  # keeps the journal open
    connection.execute("create table t (number)")
    second = Log(home)
    with watch_sqlite(second), closing(connection):
        commit(connection, 0)
        synced = [names_at(second, home)[item.node] for item in second.items if isinstance(item, Fsync)]
    assert synced == ["a.db-journal", "a.db-journal", "a.db", "a.db-journal"]
    assert replayed(second, home) == on_disk(home)


def test_a_folder_that_was_synced_between_two_blocks_is_not_synced_again(home: Path, log: Log) -> None:
    write_commits(Log(home), home, "wal", "full").close()
    with watch_sqlite(log):
        connection = sqlite3.connect(home / "a.db")
        connection.execute("select * from t")  # opens the WAL
    commit(connection, COMMITS)
    second = Log(home)
    with watch_sqlite(second), closing(connection):
        commit(connection, COMMITS + 1)
        synced = [names_at(second, home)[item.node] for item in second.items if isinstance(item, Fsync)]
    assert synced == ["a.db-wal"]


def names_at(log: Log, home: Path) -> dict[int, str]:
    """Return the current name of each file."""
    return {log.node(path.stat(), None): path.name for path in home.iterdir()} | {HOME: "."}


def test_a_connection_may_outlive_the_interpreter(home: Path) -> None:
    script = f"""if True:
        import sqlite3, sys
        from pathlib import Path
        from pytest_wfstate.faults.trace.log import Log
        from pytest_wfstate.faults.record.sqlite_vfs import watch_sqlite
        home = Path({str(home)!r})
        with watch_sqlite(Log(home)):
            connection = sqlite3.connect(home / "a.db")
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table t (number)")
        connection.execute("insert into t values (1)")
        connection.commit()
        sys.late = connection
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_reachable_library_nothing_is_recorded(home: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_abi, "libraries", lambda: iter(()))
    monkeypatch.setattr(sqlite_vfs, "_wrapper", sqlite_vfs._wrapper.__wrapped__)
    before = default_vfs()
    with watch_sqlite(log) as watching:
        assert watching is False
        assert default_vfs() == before
        write_commits(Log(home), home, "delete", "full").close()
    assert log.items == []
    assert log.unmeasured == []


def test_a_library_that_sqlite3_does_not_use_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[int] = []

    class Copy:
        """A second copy of SQLite: `sqlite3` does not see what is registered there."""

        def __getattr__(self, name: str) -> Any:
            return getattr(LIBRARY, name)

        def sqlite3_vfs_register(self, address: int, _default: int) -> None:
            registered.append(address)

        def sqlite3_vfs_unregister(self, address: int) -> None:
            registered.remove(address)

    monkeypatch.setattr(sqlite_vfs, "_NAME", b"wfstate-copy")
    monkeypatch.setattr(sqlite_abi, "libraries", lambda: iter([Copy()]))
    assert sqlite_vfs._wrapper.__wrapped__() is None
    assert registered == []


# What need not be recorded.


def test_the_mapped_index_of_a_wal_is_rebuilt(home: Path, log: Log) -> None:
    with closing(write_commits(log, home, "wal", "full")):
        assert sorted(path.name for path in home.iterdir() if is_rebuilt(str(path))) == ["a.db-shm"]


def test_a_file_of_that_name_without_a_database_is_not_rebuilt(home: Path) -> None:
    home.joinpath("mine-shm").touch()
    assert not is_rebuilt(str(home / "mine-shm"))
