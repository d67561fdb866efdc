"""Deadlocks: no two calls of a store wait for each other in PostgreSQL."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import psycopg
import pytest

from pytest_wfstate import SqlPausedStore, samples
from pytest_wfstate.stores.sql import libpq
from tests.unit.stores.sql.places import Place

_MOMENT = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
_BY_TABLE = "-c%20enable_indexscan%3Doff%20-c%20enable_bitmapscan%3Doff"
_BY_INDEX = "-c%20enable_seqscan%3Doff%20-c%20enable_bitmapscan%3Doff"
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
_MOST_LOOKS = 3000
_LONGEST = 60.0  # seconds, three times as long as a store waits for a lock


def test_two_recoveries_do_not_wait_for_each_other(on_postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One scans the table and one an index, so they come to the runs in opposite orders."""
    times = iter([_MOMENT, _MOMENT - datetime.timedelta(hours=1)])
    with on_postgres.open(SqlPausedStore, clock=lambda: next(times)) as store:
        for run_id in ("first", "second"):
            store.save(samples.paused(run_id))
            store.claim(run_id)
    failures = failing(monkeypatch)
    with (
        psycopg.connect(on_postgres.url) as blocking,
        psycopg.connect(on_postgres.url, autocommit=True) as onlooker,
    ):
        blocking.execute(f"SELECT * FROM {on_postgres.prefix}_paused WHERE run = 'first' FOR UPDATE")
        recoveries = [Recovery(on_postgres, options) for options in (_BY_TABLE, _BY_INDEX)]
        for number, recovery in enumerate(recoveries, 1):
            recovery.start()
            until_waiting(onlooker, on_postgres.prefix, number)
        blocking.rollback()
        for recovery in recoveries:
            recovery.join(_LONGEST)
    assert failures == []
    assert sorted(recovery.rearmed for recovery in recoveries) == [0, 2]


class Recovery(threading.Thread):
    """A worker that recovers, in a session with its own options."""

    def __init__(self, place: Place, options: str) -> None:
        super().__init__(daemon=True)
        url = f"{place.url}?application_name={place.prefix}&options={options}"
        self._store = Place(url, place.prefix).open(SqlPausedStore)
        self._store.list()
        self.rearmed = -1

    def run(self) -> None:
        with self._store:
            self.rearmed = self._store.recover_orphaned()


def until_waiting(onlooker: psycopg.Connection[Any], name: str, sessions: int) -> None:
    """Return when this many sessions wait for a lock."""
    for _ in range(_MOST_LOOKS):
        if onlooker.execute(_WAITING, [name]).fetchone() == (sessions,):
            return
        time.sleep(0.01)  # they wait in the server, so there is no event to await
    pytest.fail(f"{sessions} sessions should wait for a lock, but do not")


def failing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what fails, even if it is retried."""
    failures: list[str] = []
    exchange = libpq.exchange

    def noting(driver: Any, message: Any) -> Any:
        try:
            return exchange(driver, message)
        except libpq.StatementFailed as failed:
            failures.append(type(failed.error).__name__)
            raise

    monkeypatch.setattr(libpq, "exchange", noting)
    return failures
