"""The pytest plugin: hooks, options and fixtures.

It imports nothing heavy before a test needs it, so a run that does not use it pays nothing.
"""

from __future__ import annotations

import importlib
import itertools
import operator
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_wfstate.labs import options
from pytest_wfstate.report.terminal import ResultCollector, suite_of
from pytest_wfstate.stores.backends import BACKENDS

if TYPE_CHECKING:
    from pytest_wfstate.faults.fake_disk import FakeDisk
    from pytest_wfstate.faults.frozen_clock import FrozenClock
    from pytest_wfstate.faults.servers import GivenServer, Server
    from pytest_wfstate.labs.crash import Crash
    from pytest_wfstate.labs.race import Race

STORES = {
    "Effect": "which tool calls of a task are done",
    "Paused": "the runs that wait for a human, and who claimed each",
    "Resume": "where each run resumes after a restart",
    "Snapshot": "the state of a graph after every super-step",
    "Run": "the definition, context and steps of each run",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and their ini twins."""
    group = parser.getgroup("wfstate", "durable workflow state")
    for name, metavar, what in (
        ("backends", "NAMES", f"comma-separated backends of the store fixtures, one test item each: {_of(BACKENDS)}"),
        ("profile", "NAME", f"how much each exploration may try: {_of(options.CHOICES['profile'])}"),
        ("model", "NAME", f"disk model for crashes in tests that do not name one: {_of(options.CHOICES['model'])}"),
        ("servers", "NAME", "a test that finds no server is skipped (optional) or fails (required)"),
        ("timeout", "SECONDS", "seconds that each store call in a suite may take"),
        ("corpus", "DIR", "folder of failures to try first in the next run (default: in pytest's cache), or 'none'"),
    ):
        group.addoption(f"--wfstate-{name}", metavar=metavar, help=what)
        parser.addini(f"wfstate_{name}", what, default=options.DEFAULTS[name])
    for name in ("postgres", "redis"):
        what = f"use this server for {name}_server instead of starting one; also WFSTATE_{name.upper()}_URL"
        group.addoption(f"--wfstate-{name}-url", metavar="URL", help=what)
    group.addoption("--wfstate-replay", metavar="ID", help="replay only the violation with this id, from its report")
    group.addoption("--wfstate-keep", metavar="DIR", help="keep the disk of each violation in this folder")


def _of(names: Iterable[str]) -> str:
    return ", ".join(names)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options, and make the store fixtures, with one test item for each chosen backend."""
    options.check(config)
    config.pluginmanager.register(_store_fixtures(options.backends(config)), "wfstate-stores")
    config.pluginmanager.register(ResultCollector(config.getoption("--wfstate-replay")), "wfstate-results")
    config.addinivalue_line(
        "markers", "wfstate(contract, level, fault): set on each clause of a suite; do not set it yourself"
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Show what the fixtures will use."""
    backends, profile, model = options.backends(config), options.profile(config), options.model(config)
    return f"wfstate: backends {', '.join(backends)}; profile {profile}; model {model}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set the marks of its clause on a test of a suite."""
    if _is_of_suite(item):
        from pytest_wfstate.suites.pytest_items import collected

        collected(item)  # type: ignore[arg-type]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect clauses above the level of their suite, and count them. It runs last: -k and -m are not counted."""
    if any(map(_is_of_suite, items)):
        from pytest_wfstate.suites.pytest_items import is_asked

        asked = [not _is_of_suite(item) or is_asked(item) for item in items]  # type: ignore[arg-type]
        not_asked = list(itertools.compress(items, map(operator.not_, asked)))
        items[:] = itertools.compress(items, asked)
        config.hook.pytest_deselected(items=not_asked)
        collector = config.pluginmanager.getplugin("wfstate-results")
        collector.not_asked.update(suite_of(item.nodeid) for item in not_asked)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Drop what an earlier run of the same item reported: some plugins run a test that fails again."""
    item.user_properties[:] = [
        pair for pair in item.user_properties if not pair[0].startswith("wfstate_") or pair[0] in options.OF_ITEMS
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a violation in a suite by its own report, without a traceback."""
    if not _is_of_suite(item):
        return (yield)
    from pytest_wfstate.suites.pytest_items import point_at_users_code, reported

    point_at_users_code(item, call)
    report = yield
    reported(item, call, report)
    return report


def _is_of_suite(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "cls", None), "known_failures")


def _store_fixtures(backends: list[str]) -> types.ModuleType:
    """Build a plugin with the store fixtures: their parameters are known only once pytest is configured."""
    plugin = types.ModuleType("pytest_wfstate store fixtures")
    for kind, what in STORES.items():
        name = f"{kind.lower()}_store"
        setattr(plugin, name, pytest.fixture(name=name, params=backends)(_store_fixture(kind, what)))
    return plugin


def _store_fixture(kind: str, what: str) -> Callable[..., Iterator[Any]]:
    def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        from pytest_wfstate.labs.stores import open_store

        with open_store(kind, request, tmp_path_factory) as opened:
            yield opened

    store.__doc__ = f"An empty {kind}Store: {what}. One test item per backend of --wfstate-backends."
    return store


@pytest.fixture
def frozen_clock(request: pytest.FixtureRequest) -> Iterator[FrozenClock]:
    """A frozen time of day: `.now`, `.tick(seconds)`, `.move_to(when)`. `asyncio.sleep` still returns."""
    # If pydantic is first imported while time is frozen, it takes freezegun's datetime for the real one, and rejects
    # the real one for the rest of the session.
    importlib.import_module("pytest_wfstate.samples")
    from pytest_wfstate.faults.frozen_clock import START, frozen_clock

    with frozen_clock(getattr(request, "param", START)) as clock:
        yield clock


@pytest.fixture
def fake_disk(request: pytest.FixtureRequest) -> Iterator[FakeDisk]:
    """An in-memory disk that can be full, read-only or case-insensitive: `.home`, `.fill()`, `.read_only(folder)`."""
    from pytest_wfstate.faults.fake_disk import fake_disk

    folders = [request.getfixturevalue("tmp_path")] if "tmp_path" in request.fixturenames else []
    with fake_disk(folders) as disk:
        yield disk


@pytest.fixture
def crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """A crash lab: `.explore(workload, check)` checks every disk a crash could leave; also `.kill`, `.errors`."""
    from pytest_wfstate.labs.fixtures import crash_lab
    from pytest_wfstate.report.progress import ProgressLine

    yield from crash_lab(request, ProgressLine(request.config))


@pytest.fixture
def race(request: pytest.FixtureRequest) -> Iterator[Race]:
    """A race lab: `.explore(setup, clients, check)` runs clients in every interleaving; also `.storm`."""
    from pytest_wfstate.labs.fixtures import race_lab
    from pytest_wfstate.report.progress import ProgressLine

    yield from race_lab(request, ProgressLine(request.config))


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server | GivenServer:
    """A PostgreSQL server owned by the tests: `.url`, `.kill()`, `.restart()`, `.stop()`. Skips if there is none."""
    server: Server | GivenServer = request.getfixturevalue("_wfstate_postgres")
    return server


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """A Redis server owned by the tests: `.url`, `.kill()`, `.restart()`, `.stop()`. Skips if there is none."""
    if hasattr(request, "param"):
        from pytest_wfstate.labs.servers import redis

        yield from redis(request, request.param)
    else:
        yield request.getfixturevalue("_wfstate_redis")


# What suites and store fixtures use themselves: a user's fixture of a public name does not replace these.


@pytest.fixture
def _wfstate_crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """The crash lab of the suites."""
    from pytest_wfstate.labs.fixtures import crash_lab, unique_home
    from pytest_wfstate.report.progress import ProgressLine

    yield from crash_lab(request, ProgressLine(request.config), unique_home())


@pytest.fixture
def _wfstate_race(request: pytest.FixtureRequest) -> Iterator[Race]:
    """The race lab of the suites."""
    from pytest_wfstate.labs.fixtures import race_lab, unique_home
    from pytest_wfstate.report.progress import ProgressLine

    yield from race_lab(request, ProgressLine(request.config), unique_home())


@pytest.fixture(scope="session")
def _wfstate_postgres(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """The PostgreSQL server of the store fixtures."""
    from pytest_wfstate.labs.servers import postgres

    yield from postgres(request)


@pytest.fixture(scope="session")
def _wfstate_redis(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """The Redis server of the store fixtures."""
    from pytest_wfstate.labs.servers import redis

    yield from redis(request)


@pytest.fixture(scope="session")
def _wfstate_volatile_redis(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """A Redis server that keeps nothing on disk, for the zoo."""
    from pytest_wfstate.labs.servers import redis

    yield from redis(request, "volatile")
