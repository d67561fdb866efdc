"""Secrets: neither a password nor what a record holds is in a text that a store shows."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from pytest_wfstate import LostConnection, MissingExtra, SqlResumeStore, UnusableDatabase, samples
from tests.unit.stores.sql.places import Place

URLS = [
    "postgresql://me:s3cret@127.0.0.1:9/none",
    "postgresql://127.0.0.1:9/none?user=me&password=s3cret",
    "postgresql://127.0.0.1:9/none?sslpassword=s3cret&user=me",
    "postgresql://me:s3cret@127.0.0.1:9/none?password=s3cret%261&connect_timeout=3",
]


def shown(error: BaseException | None) -> str:
    """Return what is shown of an error, of those it was raised from, and of those that were handled meanwhile."""
    if error is None:
        return ""
    own = f"{error} {error!r} {error.args} {getattr(error, 'params', None)}"
    return " ".join([own, shown(error.__cause__), shown(error.__context__)])


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_not_shown_by_a_store_that_cannot_connect(url: str) -> None:
    store = SqlResumeStore(url)
    with pytest.raises(LostConnection, match=r"\*\*\*") as raised:
        store.load("a")
    assert "s3cret" not in repr(store) + shown(raised.value)
    assert "127.0.0.1:9/none" in repr(store)


@pytest.mark.parametrize(
    "where",
    [
        "nosuch://me:s3cret@host/base?password=s3cret",
        "postgresql+asyncpg://me:s3cret@host/base?password=s3cret",
        "sqlite://me:s3cret@/:memory:",
        "postgresql://me:s3cret@host/base?password=s3cret&prepare_threshold=x",
        "mysql://me:s3cret@host/base",
        "oracle://me:s3cret s3cret@host/base",
        "postgresql+psycopg2://me:s3cret s3cret@host/base",
    ],
)
def test_a_password_in_a_url_that_is_refused_is_not_shown(where: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises((UnusableDatabase, MissingExtra)) as raised:
        SqlResumeStore(where)
    assert "s3cret" not in shown(raised.value)
    assert "***" in str(raised.value)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql//me:s3cret@host/base",
        "postgresql:/me:s3cret@host/base",
        "me:s3cret@host/base",
        "host=there password=s3cret",
        "host=there password='s3cret s3cret'",
        r"host=there password='it\'s s3cret'",
        r"host=there password=a\ s3cret",
        "postgresql://me:pass@word:s3cret@host/base",
        "postgresql://me:s3cret@x:y@host/base",
        "postgresql://me:pass@s3cret@host/base",
        "postgresql://me:pass@word s3cret@host/base",
        "mysql://me:pass@word s3cret@host/base",
        "postgresql://me:s3cret@host:5x/base",
        "postgresql://me:s3cret@[::1/base",
        b"postgresql://me:s3cret@host/base",
        make_url("postgresql://host/base").set(host="s3cret@host"),
    ],
    ids=repr,
)
def test_what_is_not_a_url_is_not_shown(where: Any) -> None:
    with pytest.raises(UnusableDatabase, match=r"cannot hold a store: .* Use a URL such as") as raised:
        SqlResumeStore(where)
    assert "s3cret" not in shown(raised.value)


def test_a_password_is_not_shown_if_the_driver_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra) as raised:
        SqlResumeStore("postgresql://me:s3cret@host/without-driver-2?password=s3cret")
    assert "s3cret" not in shown(raised.value)


def refusing(place: Place) -> Any:
    """A store whose table refuses what it is to keep."""
    store = place.open(SqlResumeStore)
    store.load("a")
    table = f"{place.prefix}_resume"
    engine = place.engine()
    with engine.begin() as connection:
        if place.is_sqlite:
            refuse = f"CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END"
        else:
            refuse = f"ALTER TABLE {table} ADD CHECK (length(record) < 5)"
        connection.execute(text(refuse))
    engine.dispose()
    return store


def test_what_a_record_holds_is_not_in_the_errors_of_the_database(place: Place) -> None:
    """PostgreSQL quotes the row in the details of its error, and SQLAlchemy the values of the statement in its own."""
    store = refusing(place)
    point = samples.resume_point("a-secret-run", scope_snapshot={"key": "s3cret"})
    with pytest.raises(DBAPIError) as raised:
        store.save(point)
    error = raised.value
    assert "s3cret" not in shown(error)
    assert "INSERT INTO" in str(error)
    assert ("refused" if place.is_sqlite else "violates check constraint") in str(error)
    store.close()


def test_what_a_record_holds_is_not_in_the_errors_of_a_users_engine(place: Place) -> None:
    refusing(place).close()
    engine = place.engine(hide_parameters=False)
    with pytest.raises(DBAPIError) as raised:
        SqlResumeStore(engine, prefix=place.prefix).save(samples.resume_point("a", scope_snapshot={"key": "s3cret"}))
    assert "s3cret" not in shown(raised.value)
    engine.dispose()
