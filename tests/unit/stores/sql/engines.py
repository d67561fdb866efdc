"""Engines: the one that a store has, and what the database says of a transaction on one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from pytest_wfstate import SqlResumeStore, samples
from tests.unit.stores.sql.places import Place

POINT = samples.resume_point("a")


def engine_of(store: Any) -> Engine:
    engine: Engine = store._database.engine
    return engine


def setting(engine: Engine, place: Place, question: str) -> Any:
    """Ask the database about a transaction in which a store changes something."""
    with SqlResumeStore(engine, prefix=place.prefix) as store:
        return store._database.write(lambda transaction: transaction.execute_text(question).value)
