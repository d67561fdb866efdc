"""Claims that fail: a handle keeps the claim that it had, whether or not the new one was made."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from pytest_wfstate import LostConnection, NotFound, SqlPausedStore, samples
from pytest_wfstate.stores.own_claims import MOST_TOKENS
from tests.unit.stores.sql.places import Place

RUN = samples.paused("a")


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """Have another program keep every run locked."""
    if place.is_sqlite:
        other: Any = sqlite3.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = psycopg.connect(place.url)
        other.execute(f"SELECT * FROM {place.prefix}_paused FOR UPDATE")
    yield
    other.rollback()
    other.close()


def impatient(place: Place) -> Any:
    """Open a handle that does not wait for locks."""
    query = "timeout=0" if place.is_sqlite else "options=-c%20lock_timeout%3D1ms"
    return Place(f"{place.url}?{query}", place.prefix).open(SqlPausedStore)


def test_a_claim_that_was_refused_leaves_the_handle_its_token(place: Place) -> None:
    with impatient(place) as store:
        store.save(RUN)
        store.claim("a")
        token = store.token("a")
        store.save(RUN)
        with locked(place), pytest.raises(OperationalError):
            store.claim("a")
        assert store.token("a") == token

        store.complete("a")

        assert not store.renew("a", token)
        assert store.list() == ["a"]


def test_a_restarted_worker_whose_claim_was_refused_may_still_finish_up(place: Place) -> None:
    with place.open(SqlPausedStore) as killed, impatient(place) as restarted:
        killed.save(RUN)
        killed.claim("a")
        killed.save(RUN)
        with locked(place), pytest.raises(OperationalError):
            restarted.claim("a")
        with pytest.raises(NotFound):
            restarted.token("a")

        restarted.complete("a")

        assert not killed.renew("a", killed.token("a"))


def test_a_claim_without_a_server_leaves_the_handle_its_token(on_postgres: Place) -> None:
    with on_postgres.open(SqlPausedStore) as store:
        store.save(RUN)
        store.claim("a")
        token = store.token("a")
        store.save(RUN)
        change = store._database.change

        def unreachable(*args: Any) -> Any:
            store.close()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store._database.engine, "raw_connection", refuse)
                return change(*args)

        def refuse() -> Any:
            raise psycopg.OperationalError("connection refused")

        store._database.change = unreachable
        with pytest.raises(LostConnection, match="Nothing was changed"):
            store.claim("a")
        store._database.change = change
        assert store._claims.tokens("a") == (token,)


# A claim that may or may not have been made


class InterruptedBySignal(BaseException):
    pass


def interrupted(store: Any, *, is_made: bool) -> None:
    """Interrupt the next claim, before or after the database makes it."""
    change: Callable[..., Any] = store._database.change

    def raising(*args: Any) -> Any:
        store._database.change = change
        if is_made:
            change(*args)
        raise InterruptedBySignal

    store._database.change = raising
    with pytest.raises(InterruptedBySignal):
        store.claim("a")


@pytest.mark.parametrize("is_made", [False, True])
def test_a_handle_completes_its_claim_whether_or_not_an_interrupted_one_replaced_it(
    place: Place, is_made: bool
) -> None:
    with place.open(SqlPausedStore) as store, place.open(SqlPausedStore) as other:
        store.save(RUN)
        store.claim("a")
        store.save(RUN)
        interrupted(store, is_made=is_made)
        token = store.token("a")
        assert other.renew("a", token)

        store.complete("a")

        assert not other.renew("a", token)
        assert other.recover_orphaned() == 0
        assert other.list() == ([] if is_made else ["a"])


def test_a_handle_keeps_its_claim_and_few_tokens_however_many_claims_are_interrupted(place: Place) -> None:
    with place.open(SqlPausedStore) as store, place.open(SqlPausedStore) as other:
        store.save(RUN)
        store.claim("a")
        token = store.token("a")
        store.save(RUN)
        for _ in range(3 * MOST_TOKENS):
            interrupted(store, is_made=False)
        assert len(store._claims.tokens("a")) == MOST_TOKENS
        assert store.token("a") == token

        interrupted(store, is_made=True)
        assert other.renew("a", store.token("a"))
        store.save(RUN)
        assert store.claim("a") == RUN
        assert store._claims.tokens("a") == (store.token("a"),)


def test_an_interrupted_claim_frees_no_claim_of_another(place: Place) -> None:
    with place.open(SqlPausedStore) as store, place.open(SqlPausedStore) as other:
        store.save(RUN)
        store.claim("a")
        store.save(RUN)
        interrupted(store, is_made=False)
        other.claim("a")

        store.complete("a")

        assert other.recover_orphaned() == 1


def test_threads_that_share_a_handle_complete_what_either_has_claimed(on_sqlite: Place) -> None:
    """The second claims the run between the first one's claim and its note of it."""
    with on_sqlite.open(SqlPausedStore) as store:
        store.save(RUN)
        made = store._claims.made

        def late(*args: Any, **options: Any) -> None:
            store._claims.made = made
            store.save(RUN)
            store.claim("a")
            made(*args, **options)

        store._claims.made = late
        store.claim("a")
        assert store.renew("a", store.token("a"))

        store.complete("a")

        assert store.recover_orphaned() == 0
