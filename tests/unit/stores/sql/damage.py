"""Damage: what a suite does to the record of an id, past the store."""

from __future__ import annotations

from sqlalchemy import Engine, MetaData, update

TORN = '{"torn'

# The table of each contract that holds a record, and the columns that do.
PLACES = {
    "effects": ("tasks", "task", ["record"]),
    "paused": ("paused", "run", ["record"]),
    "resume": ("resume", "run", ["record"]),
    "runs": ("runs", "run", ["record"]),
    "snapshots": ("snapshots", "run", ["record", "timestamp_ms"]),
}


def tear(engine: Engine, contract: str, one: str, prefix: str = "wfstate") -> None:
    """Leave half of a record."""
    name, column, texts = PLACES[contract]
    with engine.begin() as connection:
        tables = MetaData()
        tables.reflect(connection, only=[f"{prefix}_{name}"])
        table = tables.tables[f"{prefix}_{name}"]
        torn = connection.execute(update(table).where(table.c[column] == one).values(dict.fromkeys(texts, TORN)))
        assert torn.rowcount == 1
