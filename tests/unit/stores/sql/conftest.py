"""What the tests of stores in databases share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stores.sql.places import Place, new_prefix
from tests.unit.stores.sql.server import Server, binaries, served


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server that the tests own."""
    pytest.importorskip("psycopg")
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL on PATH, in /usr/lib/postgresql or in a wheel")
    with served(programs) as server:
        yield server


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/state.db", new_prefix())


@pytest.fixture
def on_postgres(postgres: Server) -> Place:
    return Place(postgres.url, new_prefix())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A place for a store, in each database."""
    found: Place = request.getfixturevalue(f"on_{request.param}")
    return found
