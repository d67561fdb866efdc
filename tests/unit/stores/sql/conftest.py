"""What the tests of stores in databases share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_wfstate import Server
from tests.unit.stores.sql.places import Place, new_prefix


@pytest.fixture
def postgres(postgres_server: Server) -> Server:
    """A server that the tests own."""
    return postgres_server


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/state.db", new_prefix())


@pytest.fixture
def on_postgres(postgres: Server) -> Place:
    return Place(postgres.url, new_prefix())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A place for a store, in each database."""
    chosen: Place = request.getfixturevalue(f"on_{request.param}")
    return chosen
