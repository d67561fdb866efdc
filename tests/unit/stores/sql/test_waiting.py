"""Waiting for a free connection, for changes of others and for a vanished server, and for how long."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from pytest_wfstate import SqlEffectStore, SqlResumeStore, SqlRunStore, as_sync, samples
from pytest_wfstate.stores.sql import database as database_module
from tests.unit.stores.sql.engines import POINT, engine_of, in_call, setting
from tests.unit.stores.sql.places import Place

# How many connections there are


class Meter:
    """Counts the connections of a handle that are open."""

    def __init__(self, store: Any) -> None:
        self.most = self.open = 0
        self._lock = threading.Lock()
        event.listen(engine_of(store), "connect", lambda *_: self._count(1))
        event.listen(engine_of(store), "close", lambda *_: self._count(-1))
        event.listen(engine_of(store), "close_detached", lambda *_: self._count(-1))

    def _count(self, one: int) -> None:
        with self._lock:
            self.open += one
            self.most = max(self.most, self.open)


def test_a_handle_has_32_connections_at_most_and_further_calls_wait_for_one(place: Place) -> None:
    store = place.open(SqlResumeStore)
    store.save(POINT)
    meter = Meter(store)
    all_in, begun = threading.Event(), threading.Semaphore(0)

    def stay(_: Any) -> str:
        begun.release()
        all_in.wait()
        return "done"

    with ThreadPoolExecutor(60) as threads:
        calls = [threads.submit(in_call, store, stay) for _ in range(60)]
        for _ in range(32):
            begun.acquire()
        has_free_slot = begun.acquire(timeout=0.1)
        all_in.set()
        assert [call.result() for call in calls] == ["done"] * 60
    assert not has_free_slot
    assert meter.most <= 32
    store.close()


def test_failed_calls_release_their_slots(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open(SqlResumeStore)
    store.save(POINT)

    def refuse(*_: Any) -> None:
        raise ValueError("refused")

    for _ in range(33):
        with pytest.raises(ValueError, match="refused"):
            in_call(store, refuse)
    with monkeypatch.context() as patch:
        patch.setattr(store._database.dialect, "configure", refuse)
        for _ in range(33):
            with pytest.raises(ValueError, match="refused"):
                store.load("a")
    with monkeypatch.context() as patch:
        store.close()
        patch.setattr(engine_of(store), "raw_connection", refuse)
        for _ in range(33):
            with pytest.raises(ValueError, match="refused"):
                store.load("a")
    assert store.load("a") == POINT
    store.close()


def test_the_users_engine_keeps_its_own_bound(on_postgres: Place) -> None:
    engine = on_postgres.engine(pool_size=1, max_overflow=0, pool_timeout=0.05)
    store = SqlResumeStore(engine, prefix=on_postgres.prefix)
    store.save(POINT)
    with engine.connect(), pytest.raises(sqlalchemy.exc.TimeoutError, match="QueuePool limit of size 1"):
        store.load("a")
    assert store.load("a") == POINT
    engine.dispose()


# What a call waits for, and how long


@pytest.mark.parametrize(("given", "expected"), [("0", "5s"), ("1min", "1min")])
def test_a_transaction_that_idles_while_tables_are_created_is_ended_by_postgres(
    on_postgres: Place, given: str, expected: str
) -> None:
    engine = on_postgres.engine(connect_args={"options": f"-c idle_in_transaction_session_timeout={given}"})
    with SqlResumeStore(engine, prefix=on_postgres.prefix) as store:
        asked = "SHOW idle_in_transaction_session_timeout"
        assert store._database._change(lambda transaction: transaction.execute_text(asked).value) == expected
    engine.dispose()


@pytest.mark.parametrize(("given", "expected"), [("0", "20s"), ("1min", "1min")])
def test_a_change_waits_for_others_as_long_as_the_database_is_configured_to(
    on_postgres: Place, given: str, expected: str
) -> None:
    engine = on_postgres.engine(connect_args={"options": f"-c lock_timeout={given}"})
    assert setting(engine, on_postgres, "SHOW lock_timeout") == expected
    assert (
        setting(f"{on_postgres.url}?options=-c%20lock_timeout%3D{given}", on_postgres, "SHOW lock_timeout") == expected
    )
    with engine.connect() as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == given
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "0"
    engine.dispose()


def test_the_lock_of_a_vanished_session_is_released(on_postgres: Place) -> None:
    """For example one on a half-open connection, whose end the server never sees, while it creates tables."""
    hasty = on_postgres.engine(connect_args={"options": "-c idle_in_transaction_session_timeout=100ms"})
    store, other = SqlResumeStore(hasty, prefix=on_postgres.prefix), on_postgres.open(SqlResumeStore)
    store.load("a")
    attempts: list[int] = []

    def pause(transaction: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            other._database._change(lambda _: None)  # comes back when the server has ended the other one
        return transaction.execute_text("SELECT 1").value

    assert store._database._retry_once(lambda: store._database._change(pause)) == 1
    assert attempts == [1, 1]
    other.close()
    hasty.dispose()


def test_a_change_that_waits_too_long_for_others_is_refused_and_changes_nothing(on_postgres: Place) -> None:
    hasty = on_postgres.engine(connect_args={"options": "-c lock_timeout=50ms"})
    other, store = on_postgres.open(SqlRunStore), as_sync(SqlRunStore(hasty, prefix=on_postgres.prefix))
    store.upsert_step("a", samples.step("first"))

    def wait(transaction: Any) -> None:
        transaction.run([*other._database.dialect.begin(transaction, f"{on_postgres.prefix}_runs a")])
        with pytest.raises(OperationalError, match="lock timeout"):
            store.upsert_step("a", samples.step("second"))
        transaction.execute_text("ROLLBACK")

    in_call(other, wait)
    assert [step.step_id for step in store.list_steps("a")] == ["first"]
    store.upsert_step("a", samples.step("second"))
    assert [step.step_id for step in store.list_steps("a")] == ["first", "second"]
    other.close()
    hasty.dispose()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names for it")
@pytest.mark.parametrize(("given", "expected"), [("", 30), ("?keepalives_idle=7", 7)])
def test_a_vanished_server_is_noticed_in_a_minute_or_as_the_url_says(
    on_postgres: Place, given: str, expected: int
) -> None:
    with Place(f"{on_postgres.url}{given}", on_postgres.prefix).open(SqlResumeStore) as store:
        store.load("a")
        descriptor = os.dup(store._database._connections.idle[0].driver.fileno())
        with socket.socket(fileno=descriptor) as link:
            asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]
            assert [link.getsockopt(socket.IPPROTO_TCP, option) for option in asked] == [expected, 10, 3, 60_000]


# Threads that read the same thing, and then change it


def marks(place: Place) -> tuple[Any, Callable[[int], Any]]:
    store: Any = as_sync(place.open(SqlEffectStore))
    return store, lambda n: store.mark_step_complete("a", f"use-{n}", samples.effect(f"use-{n}"))


def updates(place: Place) -> tuple[Any, Callable[[int], Any]]:
    store: Any = as_sync(place.open(SqlRunStore))
    store.create_run(samples.run("a"))
    return store, lambda n: store.update_context("a", n)


@pytest.mark.parametrize("changes", [marks, updates])
def test_threads_that_share_a_handle_take_turns_and_need_no_retry(place: Place, changes: Any) -> None:
    store, change = changes(place)
    change(0)
    database = store._database
    ask, asked = database.ask, itertools.count()

    def counted(*args: Any) -> Any:
        next(asked)
        return ask(*args)

    database.ask = counted
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(change, range(1, 65)))
    assert next(asked) == 64
    assert not database._turns
    store.close()


def test_a_signal_handler_does_not_wait_for_the_turn_of_its_own_thread(on_sqlite: Place) -> None:
    store, change = marks(on_sqlite)
    database = store._database

    def handler() -> int:
        change(1)
        return len(store.load_checkpoint("a").completed_tool_ids)

    assert database.in_turn("a", handler) == 1
    store.close()


def test_a_call_that_waits_too_long_for_its_turn_goes_on_without(
    on_sqlite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "LONGEST_WAIT", 0)
    store, change = marks(on_sqlite)
    with ThreadPoolExecutor(1) as other:
        store._database.in_turn("a", lambda: other.submit(change, 1).result())
    assert store.load_checkpoint("a").completed_tool_ids == {"use-1"}
    store.close()
