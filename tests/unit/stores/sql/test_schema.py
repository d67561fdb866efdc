"""The schema: which tables there are, who may use them, and how rows are found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from pytest_wfstate import (
    NewerSchema,
    NotFound,
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    as_sync,
    samples,
)
from pytest_wfstate.stores.sql import libpq
from pytest_wfstate.stores.sql.schema import Schema, key
from tests.unit.stores.sql.places import Place

# Each store, a call that only looks, and its tables.
STORES: list[tuple[Any, str, tuple[str, ...], set[str]]] = [
    (SqlEffectStore, "load_checkpoint", ("a",), {"tasks", "done", "effects"}),
    (SqlPausedStore, "list", (), {"paused"}),
    (SqlResumeStore, "load", ("a",), {"resume"}),
    (SqlSnapshotStore, "list", ("wf", "a"), {"snapshots"}),
    (SqlRunStore, "list_steps", ("a",), {"runs", "run_steps"}),
]


def look(place: Place, kind: Any, call: str, args: tuple[str, ...]) -> Any:
    with as_sync(place.open(kind)) as store:
        return getattr(store, call)(*args)


def tables(place: Place) -> set[str]:
    engine = place.engine()
    names = inspect(engine).get_table_names()
    engine.dispose()
    return {name.removeprefix(f"{place.prefix}_") for name in names if name.startswith(place.prefix)}


def execute(place: Place, statement: str) -> None:
    engine = place.engine()
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize(("kind", "call", "args", "expected"), STORES)
def test_a_store_makes_its_own_tables_when_it_is_first_used(
    place: Place, kind: Any, call: str, args: tuple[str, ...], expected: set[str]
) -> None:
    store = place.open(kind)
    assert tables(place) == set()
    store.close()
    assert not look(place, kind, call, args)
    assert tables(place) == {"schema", *expected}


def test_stores_of_all_contracts_share_a_database(place: Place) -> None:
    for kind, call, args, _ in STORES:
        look(place, kind, call, args)
    assert tables(place) == {"schema"}.union(*(names for *_, names in STORES))


@pytest.mark.parametrize(("kind", "call", "args", "expected"), STORES)
def test_tables_of_a_later_release_are_refused_and_left_alone(
    place: Place, kind: Any, call: str, args: tuple[str, ...], expected: set[str]
) -> None:
    look(place, kind, call, args)
    execute(place, f"UPDATE {place.prefix}_schema SET version = 2")
    for table in expected:
        execute(place, f"DROP TABLE {place.prefix}_{table}")
    with pytest.raises(NewerSchema) as raised:
        look(place, kind, call, args)
    message = str(raised.value)
    assert f"tables {place.prefix}_* in " in message
    assert "have version 2, but this release of pytest-wfstate reads version 1. Nothing was changed. " in message
    assert "pip install -U pytest-wfstate" in message
    assert tables(place) == {"schema"}


@pytest.mark.parametrize(("kind", "call", "args", "expected"), STORES)
def test_tables_of_a_later_release_are_not_dropped(
    place: Place, kind: Any, call: str, args: tuple[str, ...], expected: set[str]
) -> None:
    look(place, kind, call, args)
    execute(place, f"UPDATE {place.prefix}_schema SET version = 2")
    with place.open(kind) as store, pytest.raises(NewerSchema, match=r"have version 2.* Nothing was changed\."):
        store.drop()
    assert tables(place) == {"schema", *expected}


def test_tables_that_a_later_release_makes_first_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is faster by a moment: this release has looked already, and found no tables."""
    is_made = Schema.is_made

    def raced(self: Schema, transaction: Any, where: str) -> bool:
        made = is_made(self, transaction, where)
        if not made:
            monkeypatch.undo()
            transaction.execute_text(f"CREATE TABLE {place.prefix}_schema (contract TEXT PRIMARY KEY, version INTEGER)")
            transaction.execute_text(f"INSERT INTO {place.prefix}_schema VALUES ('resume', 2)")
        return made

    monkeypatch.setattr(Schema, "is_made", raced)
    with place.open(SqlResumeStore) as store, pytest.raises(NewerSchema, match="have version 2"):
        store.save(samples.resume_point("a"))
    assert tables(place) == {"schema"}


def test_a_later_release_may_have_tables_of_another_contract(place: Place) -> None:
    look(place, SqlPausedStore, "list", ())
    execute(place, f"UPDATE {place.prefix}_schema SET version = 2")
    assert look(place, SqlResumeStore, "load", ("a",)) is None


def test_a_store_that_is_dropped_leaves_no_table_and_can_be_used_again(place: Place) -> None:
    with place.open(SqlPausedStore) as store, place.open(SqlResumeStore) as other:
        store.drop()
        store.save(samples.paused("a"))
        other.save(samples.resume_point("a"))
        store.drop()
        assert tables(place) == {"schema", "resume"}
        assert store.list() == []
        store.drop()
        other.drop()
        other.drop()
        assert tables(place) == set()


@pytest.mark.parametrize(("kind", "call", "args", "expected"), STORES)
def test_tables_that_another_handle_dropped_are_created_again(
    place: Place, kind: Any, call: str, args: tuple[str, ...], expected: set[str]
) -> None:
    with as_sync(place.open(kind)) as store:
        getattr(store, call)(*args)
        with place.open(kind) as other:
            other.drop()
        assert not getattr(store, call)(*args)
        assert tables(place) == {"schema", *expected}


@pytest.mark.parametrize("save", [True, False], ids=["save", "fork"])
def test_a_change_goes_on_after_tables_were_dropped(place: Place, save: bool) -> None:
    with as_sync(place.open(SqlSnapshotStore)) as store, place.open(SqlSnapshotStore) as other:
        store.save(samples.snapshot("a"))
        other.drop()
        if save:
            store.save(samples.snapshot("b"))
            assert store.latest("wf", "b") == samples.snapshot("b")
        else:
            with pytest.raises(NotFound):
                store.fork(samples.snapshot("a").key)


def test_a_missing_table_of_an_existing_schema_is_reported_as_the_database_does(place: Place) -> None:
    with place.open(SqlResumeStore) as store:
        store.save(samples.resume_point("a"))
        execute(place, f"DROP TABLE {place.prefix}_resume")
        with pytest.raises(DBAPIError, match=f"{place.prefix}_resume"):
            store.load("a")


def test_a_prefix_keeps_stores_apart(place: Place) -> None:
    with place.open(SqlPausedStore) as first, SqlPausedStore(place.url, prefix=f"{place.prefix}x") as other:
        first.save(samples.paused("a"))
        assert (first.list(), other.list()) == (["a"], [])


def test_tables_that_are_dropped_while_a_handle_looks_for_them_are_created_again(
    on_postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another handle drops them after this one has found the table of versions, and before it reads its own."""
    exchange = libpq.exchange
    with on_postgres.open(SqlResumeStore) as store, on_postgres.open(SqlResumeStore) as other:
        other.load("a")
        drops = [other.drop]

        def dropping(driver: Any, message: libpq.Message) -> Any:
            results = exchange(driver, message)
            if drops and "pg_class" in message[0][0]:
                drops.pop()()
            return results

        monkeypatch.setattr(libpq, "exchange", dropping)
        assert store.load("a") is None
        assert drops == []


@pytest.mark.parametrize("prefix", ["", "1a", "A", "a-b", 'a"; drop', "x" * 41, None, 7])
def test_an_invalid_prefix_is_refused(on_sqlite: Place, prefix: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a valid prefix.* 1 to 40 lower-case .* Use one such as 'wfstate'"):
        SqlPausedStore(on_sqlite.url, prefix=prefix)


@pytest.mark.parametrize("prefix", ["wfstate", "_", "x" * 40, "select"])
def test_a_valid_prefix_begins_the_names_of_tables(place: Place, prefix: str) -> None:
    with SqlPausedStore(place.url, prefix=prefix) as store:
        store.save(samples.paused("a"))
        assert store.list() == ["a"]
        store.remove("a")


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_ids_never_share_a_key(id_: str, other: str) -> None:
    assert (key(id_) == key(other)) == (id_ == other)


@given(st.text(max_size=1024))
def test_a_key_can_be_indexed_by_postgres(id_: str) -> None:
    assert len(key(id_).encode()) <= 255
    assert "\0" not in key(id_)


@pytest.mark.parametrize("id_", ["run-1", "Ünï/../cödé", "x" * 255, "sha256"])
def test_a_key_is_the_id_itself_where_that_is_possible(id_: str) -> None:
    assert key(id_) == id_


def test_an_id_that_looks_like_a_digest_gets_a_digest(place: Place) -> None:
    long = "x" * 1000
    with place.open(SqlPausedStore) as store:
        for run in (long, key(long)):
            store.save(samples.paused(run))
        assert store.list() == sorted([long, key(long)])
        assert store.load(long).run_id == long
        assert store.load(key(long)).run_id == key(long)
