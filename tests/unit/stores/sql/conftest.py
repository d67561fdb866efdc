"""What the tests of stores in databases share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
