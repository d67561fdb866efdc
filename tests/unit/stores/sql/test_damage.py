"""Damage: an unreadable row is reported with its table and key, and hides no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from pytest_wfstate import (
    CorruptRecord,
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    as_sync,
    samples,
)
from tests.unit.stores.sql.places import Place


def execute(place: Place, statement: str, **parameters: Any) -> None:
    engine = place.engine()
    with engine.begin() as connection:
        assert connection.execute(text(statement), parameters).rowcount > 0
    engine.dispose()


def fill_effects(place: Place) -> None:
    with as_sync(place.open(SqlEffectStore)) as effects:
        effects.mark_step_complete("a", "m1", samples.effect("m1"))


def fill_paused(place: Place) -> None:
    with place.open(SqlPausedStore) as paused:
        paused.save(samples.paused("a"))
        paused.save(samples.paused("b"))


def fill_resume(place: Place) -> None:
    with place.open(SqlResumeStore) as resume:
        resume.save(samples.resume_point("a"))


def fill_snapshots(place: Place) -> None:
    with as_sync(place.open(SqlSnapshotStore)) as snapshots:
        snapshots.save(samples.snapshot("a", 2))
        snapshots.save(samples.snapshot("a", 3))


def fill_runs(place: Place) -> None:
    with as_sync(place.open(SqlRunStore)) as runs:
        runs.create_run(samples.run("a"))
        runs.upsert_step("a", samples.step("s1"))
        runs.upsert_step("a", samples.step("s2"))


FILL: dict[Any, Callable[[Place], None]] = {
    SqlEffectStore: fill_effects,
    SqlPausedStore: fill_paused,
    SqlResumeStore: fill_resume,
    SqlSnapshotStore: fill_snapshots,
    SqlRunStore: fill_runs,
}
KEY = samples.snapshot("a", 2).key
# What is damaged, the store and the call that report it, and how they name the row.
ROWS: list[tuple[str, str, Any, Callable[[Any], Any], str]] = [
    ("tasks", "task = 'a'", SqlEffectStore, lambda store: store.load_checkpoint("a"), "task='a'"),
    ("done", "task = 'a'", SqlEffectStore, lambda store: store.load_checkpoint("a"), "task='a', tool_use='m1'"),
    ("effects", "task = 'a'", SqlEffectStore, lambda store: store.load_checkpoint("a"), "task='a', position=0"),
    ("paused", "run = 'a'", SqlPausedStore, lambda store: store.claim("a"), "run='a'"),
    ("resume", "run = 'a'", SqlResumeStore, lambda store: store.load("a"), "run='a'"),
    (
        "snapshots",
        "super_step = '00000000000000000002'",
        SqlSnapshotStore,
        lambda store: store.fork(KEY),
        "workflow='wf', run='a', super_step='00000000000000000002'",
    ),
    ("runs", "run = 'a'", SqlRunStore, lambda store: store.update_context("a", {}), "run='a'"),
    ("run_steps", "step = 's1'", SqlRunStore, lambda store: store.list_steps("a"), "run='a', step='s1'"),
]
IDS = [table for table, *_ in ROWS]


@pytest.mark.parametrize(("table", "which", "kind", "call", "row"), ROWS, ids=IDS)
@pytest.mark.parametrize("record", ['{"torn', "", "[]", '{"unknown": 1}'])
def test_a_row_that_cannot_be_read_is_named(
    place: Place, table: str, which: str, kind: Any, call: Callable[[Any], Any], row: str, record: str
) -> None:
    FILL[kind](place)
    execute(place, f"UPDATE {place.prefix}_{table} SET record = :record WHERE {which}", record=record)
    with as_sync(place.open(kind)) as store, pytest.raises(CorruptRecord) as raised:
        call(store)
    assert raised.value.where == f"table {place.prefix}_{table}, row {row}"


@pytest.mark.parametrize(("table", "which", "kind", "call", "row"), ROWS, ids=IDS)
def test_bytes_that_are_not_text_are_named_too(
    on_sqlite: Place, table: str, which: str, kind: Any, call: Callable[[Any], Any], row: str
) -> None:
    FILL[kind](on_sqlite)
    execute(on_sqlite, f"UPDATE {on_sqlite.prefix}_{table} SET record = CAST(X'7BFF7D' AS TEXT) WHERE {which}")
    with as_sync(on_sqlite.open(kind)) as store, pytest.raises(CorruptRecord) as raised:
        call(store)
    assert raised.value.where == f"table {on_sqlite.prefix}_{table}, row {row}"


def test_the_record_of_another_row_is_corrupt(place: Place) -> None:
    fill_paused(place)
    other = samples.paused("b").to_json()
    execute(place, f"UPDATE {place.prefix}_paused SET record = :record WHERE run = 'a'", record=other)
    with place.open(SqlPausedStore) as store:
        with pytest.raises(CorruptRecord, match="it is the record of row run='b'"):
            store.load("a")
        assert store.load("b") == samples.paused("b")
        assert store.list() == ["a", "b"]


def test_a_damaged_run_cannot_be_claimed_and_hides_no_other(place: Place) -> None:
    fill_paused(place)
    execute(place, f"UPDATE {place.prefix}_paused SET record = '{{' WHERE run = 'a'")
    with place.open(SqlPausedStore) as store:
        with pytest.raises(CorruptRecord):
            store.claim("a")
        assert store.recover_orphaned() == 0
        assert store.list() == ["a", "b"]
        store.save(samples.paused("a"))
        assert store.claim("a") == samples.paused("a")


def test_a_damaged_snapshot_hides_no_other(place: Place) -> None:
    fill_snapshots(place)
    execute(place, f"UPDATE {place.prefix}_snapshots SET record = '{{' WHERE super_step LIKE '%2'")
    with as_sync(place.open(SqlSnapshotStore)) as store:
        assert [meta.super_step for meta in store.list("wf", "a")] == [2, 3]
        assert store.latest("wf", "a") == samples.snapshot("a", 3)
        store.save(samples.snapshot("a", 2))
        assert store.load(KEY) == samples.snapshot("a", 2)


def test_an_invalid_time_is_reported(place: Place) -> None:
    fill_snapshots(place)
    execute(place, f"UPDATE {place.prefix}_snapshots SET timestamp_ms = 'noon' WHERE super_step LIKE '%2'")
    with as_sync(place.open(SqlSnapshotStore)) as store:
        with pytest.raises(
            CorruptRecord, match=r"row workflow='wf', run='a', super_step='0{19}2' cannot be read: its time is b?'noon'"
        ):
            store.list("wf", "a")
        assert store.load(KEY) == samples.snapshot("a", 2)


def test_a_claim_without_a_time_counts_as_old(place: Place) -> None:
    fill_paused(place)
    with place.open(SqlPausedStore) as store:
        store.claim("a")
        assert store.recover_orphaned(older_than=1000) == 0
        execute(place, f"UPDATE {place.prefix}_paused SET claimed_at = NULL WHERE run = 'a'")
        assert store.recover_orphaned(older_than=1000) == 1
