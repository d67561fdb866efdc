"""The stores that the fixtures hand out: empty, on the backend that the fixture's parameter names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.stores.backends import BACKENDS


def open_store(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Open an empty store of a kind such as `Paused`. It is a context manager."""
    backend = BACKENDS.get(request.param)
    if backend is None:
        pytest.fail(
            f"{request.fixturename} was parametrized with the unknown backend {request.param!r}. "
            f"Choose from: {', '.join(BACKENDS)}.",
            pytrace=False,
        )
    if backend.schemes:
        return _open_on_server(kind, request)
    return backend.open(kind, tmp_path_factory.mktemp(f"{kind.lower()}store") if backend.has_folder else Path())


def _open_on_server(kind: str, request: pytest.FixtureRequest) -> Any:
    from pytest_wfstate.faults.servers import GivenServer, leftovers
    from pytest_wfstate.labs.fixtures import unique_home

    server, prefix = request.getfixturevalue(f"_wfstate_{request.param}"), unique_home()
    if isinstance(server, GivenServer):  # it outlives the tests
        request.addfinalizer(lambda: leftovers.remove(server.url, [prefix]))
    return BACKENDS[request.param].open(kind, Path(prefix), server.url)
