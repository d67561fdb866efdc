"""Connections: pooled, closed by `close()`, and what becomes of a call whose connection is lost."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import Engine, event, make_url, text
from sqlalchemy.exc import OperationalError

from pytest_wfstate import (
    LostConnection,
    Server,
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    as_sync,
    samples,
)
from pytest_wfstate.faults.servers.proxy import Proxy
from pytest_wfstate.stores.sql import libpq
from tests.unit.stores.sql.engines import POINT, engine_of, in_call, setting
from tests.unit.stores.sql.places import Place, new_prefix

_END = text("SELECT pg_terminate_backend(:pid, 5000)")
_BACKENDS = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")


def open_files(name: str) -> int:
    """Count the descriptors that this process has open on a file."""
    links = Path("/proc/self/fd").iterdir()
    return sum(link.is_symlink() and link.readlink().name == name for link in links)


# What closing does


def test_calls_share_connections(place: Place) -> None:
    made = []
    with place.open(SqlResumeStore) as store:
        event.listen(engine_of(store), "connect", lambda *_: made.append(1))
        for _ in range(5):
            store.save(POINT)
            store.load("a")
    assert made == [1]


def test_closing_closes_every_connection_to_sqlite(on_sqlite: Place) -> None:
    store = on_sqlite.open(SqlResumeStore)
    store.save(POINT)
    assert open_files("state.db") > 0
    store.close()
    assert open_files("state.db") == 0


def test_closing_closes_every_connection_to_postgres(on_postgres: Place) -> None:
    named = Place(f"{on_postgres.url}?application_name={on_postgres.prefix}", on_postgres.prefix)
    store = named.open(SqlResumeStore)
    store.save(POINT)
    engine = on_postgres.engine()
    with engine.connect() as onlooker:

        def backends() -> int:
            onlooker.rollback()
            return int(onlooker.execute(_BACKENDS, {"name": on_postgres.prefix}).scalar_one())

        assert backends() == 1
        store.close()
        while backends():  # the server needs a moment to notice
            pass
    engine.dispose()


USES: dict[Any, Callable[[Any], Any]] = {
    SqlEffectStore: lambda store: store.load_checkpoint("a"),
    SqlPausedStore: lambda store: store.load("a"),
    SqlResumeStore: lambda store: store.load("a"),
    SqlRunStore: lambda store: store.get_run("a"),
    SqlSnapshotStore: lambda store: store.latest("wf", "a"),
}


@pytest.mark.parametrize("kind", USES)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_store_can_be_closed_twice_and_used_again(place: Place, kind: Any, is_own: bool) -> None:
    engine = place.engine()
    store = kind(place.url if is_own else engine, prefix=place.prefix)
    use = USES[kind]
    for _ in range(2):
        store.close()
        store.close()
        result = use(store)
        assert (asyncio.run(result) if asyncio.iscoroutine(result) else result) is None
    store.close()
    store.close()
    engine.dispose()


def test_an_unused_store_connects_to_nothing(tmp_path: Path) -> None:
    with SqlResumeStore(f"sqlite:///{tmp_path}/state.db"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_runs_while_the_store_is_closed_succeeds_and_closes_its_connection(
    on_sqlite: Place,
) -> None:
    store = on_sqlite.open(SqlResumeStore)
    store.save(POINT)
    in_call(store, lambda _: store.close(), writes=True)
    assert open_files("state.db") == 0
    assert store.load("a") == POINT
    store.close()


def test_the_users_engine_is_not_disposed_of(place: Place) -> None:
    engine = place.engine()
    disposed: list[Engine] = []
    event.listen(engine, "engine_disposed", disposed.append)
    with SqlResumeStore(engine, prefix=place.prefix) as store:
        store.save(POINT)
    assert disposed == []
    with SqlResumeStore(engine, prefix=place.prefix) as again:
        assert again.load("a") == POINT
    engine.dispose()


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_an_engine_may_have_any_isolation_level(place: Place, level: str) -> None:
    engine = place.engine(isolation_level=level)
    store = as_sync(SqlEffectStore(engine, prefix=place.prefix))
    store.mark_step_complete("a", "m1", samples.effect("m1"))
    store.save_checkpoint(samples.checkpoint("b", step_index=2**32 - 1))
    with pytest.raises(ValueError, match="step_index"):
        store.mark_step_complete("b", "m1", samples.effect("m1"))
    assert store.load_checkpoint("b").completed_tool_ids == samples.checkpoint("b").completed_tool_ids
    engine.dispose()


def test_an_engine_may_begin_transactions_implicitly(on_sqlite: Place) -> None:
    """As SQLAlchemy's own recipe for SQLite does."""
    engine = on_sqlite.engine()
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with SqlPausedStore(engine) as store:
        store.save(samples.paused("a"))
        assert store.claim("a") == samples.paused("a")
        assert store.claim("a") is None
    engine.dispose()


def test_commits_are_durable_however_sqlite_is_configured(on_sqlite: Place) -> None:
    engine = on_sqlite.engine()
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    assert setting(engine, on_sqlite, "PRAGMA synchronous") == 2
    assert setting(engine, on_sqlite, "PRAGMA journal_mode") == "wal"
    engine.dispose()


@pytest.mark.parametrize(("given", "expected"), [("off", "on"), ("local", "local"), ("on", "on")])
def test_commits_are_durable_however_postgres_is_configured(on_postgres: Place, given: str, expected: str) -> None:
    engine = on_postgres.engine(connect_args={"options": f"-c synchronous_commit={given}"})
    assert setting(engine, on_postgres, "SHOW synchronous_commit") == expected
    url = f"{on_postgres.url}?options=-c%20synchronous_commit%3D{given}"
    assert setting(url, on_postgres, "SHOW synchronous_commit") == expected
    with engine.connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == given
    engine.dispose()


def test_a_change_sees_what_others_committed_however_postgres_is_configured(on_postgres: Place) -> None:
    engine = on_postgres.engine(connect_args={"options": "-c default_transaction_isolation=serializable"})
    for where in (engine, f"{on_postgres.url}?options=-c%20default_transaction_isolation%3Dserializable"):
        assert setting(where, on_postgres, "SHOW transaction_isolation") == "read committed"
    engine.dispose()


def test_a_full_disk_is_reported_as_sqlite_does_and_changes_nothing(on_sqlite: Place) -> None:
    engine = on_sqlite.engine()
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count=10"))
    store = SqlResumeStore(engine, prefix=on_sqlite.prefix)
    store.save(POINT)
    with pytest.raises(OperationalError, match="full"):
        store.save(samples.resume_point("a", scope_snapshot={"large": "x" * 100_000}))
    assert store.load("a") == POINT
    store.save(samples.resume_point("b"))
    engine.dispose()


# What a lost connection does


def end_session(driver: Any, place: Place) -> None:
    """End the server's side of a connection."""
    killer = place.engine()
    with killer.connect() as other:
        other.execute(_END, {"pid": driver.info.backend_pid})
    killer.dispose()


@contextmanager
def cut(moment: str, place: Place, times: int = 1) -> Iterator[list[str]]:
    """End a session when a message with a statement that begins with `moment` is about to be sent."""
    left = [moment] * times
    made: list[str] = []
    exchange = libpq.exchange

    def cutting(driver: Any, message: Any) -> Any:
        made.extend(statement.split()[0] for statement, _ in message)
        if left and any(statement.startswith(moment) for statement, _ in message):
            left.pop()
            end_session(driver, place)
        return exchange(driver, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libpq, "exchange", cutting)
        yield made


CALLS: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {
    "load": (SqlResumeStore, lambda store: store.load("a")),
    "save": (SqlResumeStore, lambda store: store.save(POINT)),
    "claim": (SqlPausedStore, lambda store: store.claim("a")),
    "mark": (SqlEffectStore, lambda store: store.mark_step_complete("a", "m1", samples.effect("m1"))),
}


def opened(place: Place, kind: type[Any]) -> Any:
    """Open a store that has a connection already, and a run `a` if it keeps paused ones."""
    store = place.open(kind)
    if kind is SqlPausedStore:
        store.save(samples.paused("a"))
    looks = {SqlEffectStore: "load_checkpoint"}
    getattr(as_sync(store), looks.get(kind, "load"))("a")
    return store


@pytest.mark.parametrize("name", list(CALLS))
def test_a_session_that_ended_between_calls_is_replaced(on_postgres: Place, name: str) -> None:
    kind, call = CALLS[name]
    store = opened(on_postgres, kind)
    idle = store._database._connections.idle
    assert len(idle) == 1
    end_session(idle[0].driver, on_postgres)
    result = call(as_sync(store))
    if name == "claim":
        assert result == samples.paused("a")
        store.complete("a")
        assert store.recover_orphaned() == 0
    store.close()


def test_a_call_that_only_reads_is_retried_if_its_connection_is_lost(on_postgres: Place) -> None:
    store = opened(on_postgres, SqlResumeStore)
    with cut("SELECT", on_postgres) as made:
        assert store.load("a") is None
    asks = [statement for statement in made if statement != "SET"]
    assert asks == ["SELECT"] * 3  # the new connection asks how its session is configured
    store.close()


@pytest.mark.parametrize(("name", "sent"), [("save", "INSERT"), ("claim", "UPDATE"), ("mark", "BEGIN")])
def test_a_connection_lost_after_a_change_was_sent_is_reported_and_the_call_is_not_retried(
    on_postgres: Place, name: str, sent: str
) -> None:
    kind, call = CALLS[name]
    store = opened(on_postgres, kind)
    with (
        cut(sent, on_postgres) as made,
        pytest.raises(LostConnection, match=r"^the connection to .* was lost after a change was sent: .*\. "),
    ):
        call(as_sync(store))
    assert made.count(sent) == 1
    call(as_sync(store))  # the store goes on
    store.close()


def test_a_claim_whose_commit_was_lost_frees_no_claim_of_another(on_postgres: Place) -> None:
    store, other = opened(on_postgres, SqlPausedStore), on_postgres.open(SqlPausedStore)
    with cut("UPDATE", on_postgres), pytest.raises(LostConnection):
        store.claim("a")
    assert other.claim("a") == samples.paused("a")
    store.complete("a")
    assert other.recover_orphaned() == 1
    store.close()
    other.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_first_load_of_a_handle_succeeds_wherever_its_connection_is_lost_once(
    postgres: Server, when: Literal["before", "after"]
) -> None:
    """It logs in, asks what the server is, looks for the tables and makes them: nothing that would do harm twice."""
    for nth in itertools.count(1):
        with Proxy(postgres.url) as proxy, SqlResumeStore(proxy.url, prefix=new_prefix()) as store:
            proxy.cut(when, nth)
            assert store.load("a") is None, f"cut {when} message {nth}"
            if not proxy.cuts:
                break
            store.drop()
    assert nth > 10


def test_a_connection_lost_twice_while_creating_tables_is_reported_as_no_change(on_postgres: Place) -> None:
    store = on_postgres.open(SqlResumeStore)
    with (
        cut("COMMIT", on_postgres, times=2),
        pytest.raises(LostConnection, match=r"was lost twice: .* Nothing was changed"),
    ):
        store.load("a")
    assert store.load("a") is None
    store.close()


def test_a_connection_lost_during_the_commit_of_a_drop_is_reported(on_postgres: Place) -> None:
    """To drop again could drop what others have saved meanwhile."""
    store = opened(on_postgres, SqlResumeStore)
    with cut("COMMIT", on_postgres) as made, pytest.raises(LostConnection, match="lost during COMMIT"):
        store.drop()
    assert made.count("COMMIT") == 1
    store.close()


@pytest.mark.parametrize(("part", "value"), [("username", "nobody"), ("database", "nowhere")])
def test_a_refused_login_is_not_retried(postgres: Server, part: str, value: str) -> None:
    changed: dict[str, Any] = {part: value}
    store = SqlResumeStore(make_url(postgres.url).set(**changed))
    logins = []
    event.listen(engine_of(store), "do_connect", lambda *_: logins.append(1))
    with pytest.raises(LostConnection, match=f'^cannot connect to .*"{value}".* Nothing was changed'):
        store.load("a")
    assert logins == [1]


def test_a_connection_that_is_lost_twice_is_reported(on_postgres: Place) -> None:
    store = opened(on_postgres, SqlResumeStore)
    with (
        cut("SELECT", on_postgres, times=9),
        pytest.raises(LostConnection, match=r"was lost twice: .* Nothing was changed"),
    ):
        store.load("a")
    assert store.load("a") is None
    store.close()


def test_a_killed_server_is_reported_and_used_again_after_its_restart(on_postgres: Place, postgres: Server) -> None:
    store = on_postgres.open(SqlResumeStore)
    store.save(POINT)
    postgres.kill()
    try:
        with pytest.raises(LostConnection, match=r"^cannot connect to postgresql.*: .* Nothing was changed\. "):
            store.save(samples.resume_point("b"))
    finally:
        postgres.restart()
    assert store.load("a") == POINT
    assert store.load("b") is None
    store.close()


def test_a_password_is_never_shown() -> None:
    pytest.importorskip("psycopg")
    store = SqlResumeStore("postgresql://me:secret@127.0.0.1:9/none")
    with pytest.raises(LostConnection) as raised:
        store.load("a")
    assert "secret" not in str(raised.value) + repr(store)
    assert "me:***@127.0.0.1:9/none" in str(raised.value)


def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqlResumeStore(f"sqlite:///{tmp_path}/file/state.db")
    with pytest.raises(LostConnection, match=r"unable to open database file.*the folder of the file"):
        store.load("a")


# What an event loop sees


def test_a_call_that_waits_does_not_block_the_event_loop(on_sqlite: Place) -> None:
    async def main() -> int:
        steps = 0
        async with on_sqlite.open(SqlSnapshotStore) as store:
            await store.save(samples.snapshot("a"))
            with sqlite3.connect(on_sqlite.url.removeprefix("sqlite:///"), isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                saving = asyncio.create_task(store.save(samples.snapshot("a", 10)))
                while steps < 1000:
                    await asyncio.sleep(0)
                    steps += not saving.done()
                other.execute("ROLLBACK")
            await saving
            assert (await store.latest("wf", "a")).key.super_step == 10
        other.close()
        return steps

    assert asyncio.run(main()) == 1000


def test_closing_a_store_does_not_block_the_event_loop(on_sqlite: Place) -> None:
    threads = []

    async def main() -> None:
        async with on_sqlite.open(SqlSnapshotStore) as store:
            await store.save(samples.snapshot("a"))
            event.listen(engine_of(store), "engine_disposed", lambda _: threads.append(threading.current_thread()))

    asyncio.run(main())
    assert threads
    assert threading.main_thread() not in threads


def test_one_store_serves_one_event_loop_after_another(place: Place) -> None:
    store = place.open(SqlSnapshotStore)
    for n in range(3):
        asyncio.run(store.save(samples.snapshot("a", n)))
    assert len(asyncio.run(store.list("wf", "a"))) == 3
    store.close()


def test_threads_that_share_a_handle_lose_nothing(place: Place) -> None:
    store = place.open(SqlEffectStore)

    async def write(worker: int) -> None:
        for n in range(10):
            await store.mark_step_complete("a", f"{worker}-{n}", samples.effect(f"{worker}-{n}"))

    async def main() -> None:
        await asyncio.gather(*(write(worker) for worker in range(8)))

    asyncio.run(main())
    task = asyncio.run(store.load_checkpoint("a"))
    assert task is not None
    assert sorted(task.completed_tool_ids) == sorted(f"{worker}-{n}" for worker in range(8) for n in range(10))
    assert len(task.side_effects_log) == task.step_index == 80
    store.close()
