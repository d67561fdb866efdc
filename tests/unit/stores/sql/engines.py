"""Engines: the one that a store has, and what happens on one in the middle of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, text

from pytest_wfstate import SqlResumeStore, samples
from pytest_wfstate.stores.sql.statements import Statement
from tests.unit.stores.sql.places import Place

POINT = samples.resume_point("a")


def engine_of(store: Any) -> Engine:
    engine: Engine = store._database.engine
    return engine


def in_call(store: Any, work: Callable[[Any], Any], *, writes: bool = False) -> Any:
    """Do some work in the middle of a call, while it has a connection."""
    return store._database._run(work, writes=writes)


def setting(where: str | Engine, place: Place, question: str) -> Any:
    """Ask the database about a transaction in which a store changes something."""
    with SqlResumeStore(where, prefix=place.prefix) as store:
        asked = Statement(text(question), store._database.dialect.writer)
        return store._database.write([(asked, {})])[0].value
