"""Messages: no transaction waits for its client, and what was read may have changed by the time it is written back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import text

from pytest_wfstate import (
    NotFound,
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
from tests.unit.stores.sql.engines import POINT
from tests.unit.stores.sql.places import Place, new_prefix
from tests.unit.stores.sql.pooler import Pooler
from tests.unit.stores.sql.workers import LOOKS

KEY = samples.snapshot("a", 1).key
# How many messages each call sends: one to read, and one with a whole transaction to change something.
CALLS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "SqlEffectStore.save_checkpoint": (1, lambda store: store.save_checkpoint(samples.checkpoint("a"))),
    "SqlEffectStore.load_checkpoint": (1, lambda store: store.load_checkpoint("a")),
    "SqlEffectStore.mark_step_complete": (2, lambda store: store.mark_step_complete("a", "m", samples.effect("m"))),
    "SqlEffectStore.delete_checkpoint": (1, lambda store: store.delete_checkpoint("a")),
    "SqlPausedStore.save": (1, lambda store: store.save(samples.paused("a"))),
    "SqlPausedStore.load": (1, lambda store: store.load("a")),
    "SqlPausedStore.claim": (2, lambda store: store.claim("a")),
    "SqlPausedStore.recover_orphaned": (1, lambda store: store.recover_orphaned()),
    "SqlPausedStore.complete": (1, lambda store: store.complete("a")),
    "SqlPausedStore.list": (1, lambda store: store.list()),
    "SqlPausedStore.remove": (1, lambda store: store.remove("a")),
    "SqlResumeStore.save": (1, lambda store: store.save(POINT)),
    "SqlResumeStore.load": (1, lambda store: store.load("a")),
    "SqlResumeStore.delete": (1, lambda store: store.delete("a")),
    "SqlRunStore.create_run": (1, lambda store: store.create_run(samples.run("a"))),
    "SqlRunStore.get_run": (1, lambda store: store.get_run("a")),
    "SqlRunStore.update_context": (2, lambda store: store.update_context("a", {"n": 1})),
    "SqlRunStore.upsert_step": (1, lambda store: store.upsert_step("a", samples.step("s"))),
    "SqlRunStore.list_steps": (1, lambda store: store.list_steps("a")),
    "SqlRunStore.delete_run": (1, lambda store: store.delete_run("a")),
    "SqlSnapshotStore.save": (1, lambda store: store.save(samples.snapshot("a", 1))),
    "SqlSnapshotStore.latest": (1, lambda store: store.latest("wf", "a")),
    "SqlSnapshotStore.fork": (2, lambda store: store.fork(KEY)),
}


@pytest.mark.parametrize(("kind", "look", "args"), LOOKS, ids=[kind.__name__ for kind, *_ in LOOKS])
def test_a_transaction_is_one_message(postgres: Server, kind: Any, look: str, args: tuple[str, ...]) -> None:
    """PostgreSQL has all of it when it begins, so it never waits for a client that parses, or is starved of time."""
    sent = {}
    with Proxy(postgres.url) as proxy, as_sync(kind(proxy.url, prefix=new_prefix())) as store:
        getattr(store, look)(*args)  # logs in, and creates the tables
        for name, (_, call) in CALLS.items():
            if name.startswith(f"{kind.__name__}."):
                before = proxy.messages
                call(store)
                sent[name] = proxy.messages - before
    assert sent == {name: expected for name, (expected, _) in CALLS.items() if name in sent}
    assert sent


@pytest.mark.parametrize(("direct", "count"), [(True, 1), (False, 5)])
def test_a_session_that_is_the_stores_own_is_set_up_once_and_others_for_each_change(
    postgres: Server, direct: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pooler(postgres.url, sessions=1) as pooler:
        store = SqlResumeStore(postgres.url if direct else pooler.url, prefix=new_prefix())
        store.save(POINT)
        exchange = Mock(side_effect=libpq.exchange)
        monkeypatch.setattr(libpq, "exchange", exchange)
        store.save(POINT)
        assert [len(message) for _, message in (call.args for call in exchange.call_args_list)] == [count]
        store.close()


def test_postgres_never_ends_a_transaction_for_idling(on_postgres: Place) -> None:
    with as_sync(on_postgres.open(SqlRunStore)) as store:
        store.create_run(samples.run("a"))  # creating tables takes several messages
    impatient = f"{on_postgres.url}?options=-c%20idle_in_transaction_session_timeout%3D1"  # milliseconds
    store = as_sync(SqlRunStore(impatient, prefix=on_postgres.prefix))

    def update(worker: int) -> None:
        store.create_run(samples.run(f"run-{worker}"))
        for n in range(3):
            store.update_context(f"run-{worker}", {"n": n, "large": ["x" * 100] * 3_000})
            store.upsert_step(f"run-{worker}", samples.step(f"step-{n}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(update, range(8)))
    assert [store.get_run(f"run-{worker}").context["n"] for worker in range(8)] == [2] * 8
    store.close()


# What others change between a read and the write that depends on it


def after_the_first_read(store: Any, change: Callable[[], Any]) -> None:
    """Make a change as another worker, when a store has read something."""
    changes = [change]
    ask = store._database.ask

    def asked(*args: Any) -> Any:
        result = ask(*args)
        while changes:
            changes.pop()()
        return result

    store._database.ask = asked


def test_a_mark_of_another_worker_is_not_lost(place: Place) -> None:
    """Both would write the same row: the clocks say the same, and both count one step more."""
    store, other = (as_sync(place.open(SqlEffectStore, clock=lambda: samples.MOMENT)) for _ in range(2))
    store.save_checkpoint(samples.checkpoint("a", completed_tool_ids=set(), side_effects_log=[], step_index=0))
    after_the_first_read(store, lambda: other.mark_step_complete("a", "m1", samples.effect("m1")))
    store.mark_step_complete("a", "m2", samples.effect("m2"))
    task = store.load_checkpoint("a")
    assert task.completed_tool_ids == {"m1", "m2"}
    assert [effect.tool_use_id for effect in task.side_effects_log] == ["m1", "m2"]
    assert task.step_index == 2


def test_the_same_mark_of_another_worker_counts_once(place: Place) -> None:
    store, other = (as_sync(place.open(SqlEffectStore)) for _ in range(2))
    after_the_first_read(store, lambda: other.mark_step_complete("a", "m1", samples.effect("m1")))
    store.mark_step_complete("a", "m1", samples.effect("m1"))
    assert (store.load_checkpoint("a").step_index, len(store.load_checkpoint("a").side_effects_log)) == (1, 1)


def test_a_checkpoint_saved_meanwhile_with_the_mark_in_it_is_left_alone(place: Place) -> None:
    saved = samples.checkpoint("a", completed_tool_ids={"m1"})
    store, other = (as_sync(place.open(SqlEffectStore)) for _ in range(2))
    store.save_checkpoint(samples.checkpoint("a", completed_tool_ids=set()))
    after_the_first_read(store, lambda: other.save_checkpoint(saved))
    store.mark_step_complete("a", "m1", samples.effect("m1"))
    assert store.load_checkpoint("a") == saved


def test_a_task_deleted_meanwhile_is_marked_as_a_new_one(place: Place) -> None:
    store, other = (as_sync(place.open(SqlEffectStore)) for _ in range(2))
    store.mark_step_complete("a", "m1", samples.effect("m1"))
    after_the_first_read(store, lambda: other.delete_checkpoint("a"))
    store.mark_step_complete("a", "m2", samples.effect("m2"))
    assert store.load_checkpoint("a").completed_tool_ids == {"m2"}


def test_a_run_created_meanwhile_keeps_everything_but_its_context(place: Place) -> None:
    store, other = (as_sync(place.open(SqlRunStore)) for _ in range(2))
    store.create_run(samples.run("a", agent_id="old"))
    after_the_first_read(store, lambda: other.create_run(samples.run("a", agent_id="new")))
    store.update_context("a", {"n": 1})
    assert (store.get_run("a").agent_id, store.get_run("a").context) == ("new", {"n": 1})


def test_a_run_deleted_meanwhile_is_not_found(place: Place) -> None:
    store, other = (as_sync(place.open(SqlRunStore)) for _ in range(2))
    store.create_run(samples.run("a"))
    after_the_first_read(store, lambda: other.delete_run("a"))
    with pytest.raises(NotFound):
        store.update_context("a", {"n": 1})
    assert store.get_run("a") is None


def test_a_run_paused_again_meanwhile_is_claimed_as_it_is(place: Place) -> None:
    store, other = (place.open(SqlPausedStore) for _ in range(2))
    store.save(samples.paused("a", prompt="old"))
    after_the_first_read(store, lambda: other.save(samples.paused("a", prompt="new")))
    assert store.claim("a") == samples.paused("a", prompt="new")


def test_a_run_claimed_meanwhile_is_not_claimed_again(place: Place) -> None:
    store, other = (place.open(SqlPausedStore) for _ in range(2))
    store.save(samples.paused("a"))
    after_the_first_read(store, lambda: other.claim("a"))
    assert store.claim("a") is None
    store.complete("a")  # as one who never claimed it: a worker that was restarted
    assert store.recover_orphaned() == 0


def test_a_record_that_is_stored_as_bytes_can_be_claimed(on_sqlite: Place) -> None:
    with on_sqlite.open(SqlPausedStore) as store:
        store.save(samples.paused("a"))
        engine = on_sqlite.engine()
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {on_sqlite.prefix}_paused SET record = CAST(record AS BLOB)"))
        engine.dispose()
        assert store.claim("a") == samples.paused("a")


def test_a_source_saved_meanwhile_does_not_change_a_fork(place: Place) -> None:
    store, other = (as_sync(place.open(SqlSnapshotStore)) for _ in range(2))
    store.save(samples.snapshot("a", 1))
    after_the_first_read(store, lambda: other.save(samples.snapshot("a", 1, label="new")))
    fork = store.fork(KEY)
    assert store.latest("wf", fork).values == samples.snapshot("a", 1).values
    assert store.load(KEY).label == "new"


@pytest.mark.parametrize("count", [1, 1_000])
def test_ids_are_saved_all_at_once_whatever_they_contain(place: Place, count: int) -> None:
    odd = ['"', "\\", "a,b", "{}", "NULL", "'", " ", '\\"', "\n", "ü%s$1", ":name"]
    ids = {*odd, *(f"use-{n}" for n in range(count))}
    saved = samples.checkpoint(
        "a", completed_tool_ids=ids, side_effects_log=[samples.effect(id_) for id_ in sorted(ids)]
    )
    with as_sync(place.open(SqlEffectStore)) as store:
        store.save_checkpoint(saved)
        assert store.load_checkpoint("a") == saved
