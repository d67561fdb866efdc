"""Leftovers: the data of stores on a server that outlives the tests."""

from __future__ import annotations

from collections.abc import Collection

_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)"


def remove(url: str, prefixes: Collection[str]) -> None:
    """Remove all tables or keys of stores with these prefixes, over one connection. No prefix contains a `_`."""
    if url.startswith("postgresql"):
        _drop_tables(url.replace("postgresql+psycopg:", "postgresql:", 1), prefixes)
    else:
        _delete_keys(url, prefixes)


def _drop_tables(url: str, prefixes: Collection[str]) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        for (name,) in connection.execute(_TABLES).fetchall():
            if name.partition("_")[0] in prefixes:
                connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))


def _delete_keys(url: str, prefixes: Collection[str]) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        for prefix in prefixes:
            for key in client.scan_iter(match=f"*{prefix}*", count=1000):
                client.delete(key)
