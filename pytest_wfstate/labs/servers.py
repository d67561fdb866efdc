"""The servers of a test session: given by URL, or started here and shared by its tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from pytest_wfstate.faults.servers import GivenServer, NoServer, Server
from pytest_wfstate.faults.servers.postgres import PostgresServer
from pytest_wfstate.faults.servers.redis import Kind, RedisServer, check_kind
from pytest_wfstate.labs import options


def postgres(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """Yield the PostgreSQL server of the session. Skip or fail the test if there is none."""
    yield from _given_or_started(request, _given(request.config, "postgres"), PostgresServer)


def redis(request: pytest.FixtureRequest, kind: Kind = "durable") -> Iterator[Server | GivenServer]:
    """Yield the Redis server of the session, or start one of another kind. Skip or fail the test if there is none."""
    try:
        check_kind(kind)
    except ValueError as error:
        pytest.fail(f"{request.fixturename} has a wrong parameter. {error}", pytrace=False)
    given = _given(request.config, "redis") if kind == "durable" else None
    yield from _given_or_started(request, given, lambda: RedisServer(kind))


def _given_or_started(
    request: pytest.FixtureRequest, given: GivenServer | None, start: Callable[[], Server]
) -> Iterator[Server | GivenServer]:
    if given:
        yield given
        return
    try:
        server = start()
    except NoServer as error:
        if options.needs_servers(request.config):
            pytest.fail(f"{error} This test fails instead of being skipped: wfstate_servers=required.", pytrace=False)
        pytest.skip(str(error))
    with server:
        yield server


def _given(config: pytest.Config, name: str) -> GivenServer | None:
    option, variable = f"--wfstate-{name}-url", f"WFSTATE_{name.upper()}_URL"
    if url := config.getoption(option):
        return GivenServer(url, option)
    if url := os.environ.get(variable):
        return GivenServer(url, f"the environment variable {variable}")
    return None
