"""The pytest plugin: options, markers and fixtures.

It imports nothing of the package before a test asks for it, so that a run which uses none of it pays nothing.
"""

from __future__ import annotations

import importlib
import itertools
import math
import operator
import os
import types
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_wfstate.faults.fake_disk import FakeDisk
    from pytest_wfstate.faults.frozen_clock import FrozenClock
    from pytest_wfstate.faults.servers import GivenServer, Server
    from pytest_wfstate.faults.servers.redis import Kind
    from pytest_wfstate.labs.crash import Crash
    from pytest_wfstate.labs.race import Race

BACKENDS = ("memory", "file", "sqlite", "postgres", "redis")
PROFILES = ("quick", "default", "thorough")
MODELS = ("kill", "ext4", "xfs", "posix")
SERVERS = ("optional", "required")

_MANY = 8  # suites that still have a line each in the summary

STORES = {
    "effect_store": ("EffectStore", "which tool calls of a task are done"),
    "paused_store": ("PausedStore", "which runs wait for a human, and who has taken one up"),
    "resume_store": ("ResumeStore", "where a run goes on after a restart"),
    "snapshot_store": ("SnapshotStore", "the state of a graph after every super-step"),
    "run_store": ("RunStore", "the definition, context and steps of a run"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and their ini twins."""
    group = parser.getgroup("wfstate", "durable workflow state")
    known = ", ".join(BACKENDS)
    group.addoption(
        "--wfstate-backends",
        metavar="NAMES",
        help=f"backends of the store fixtures, one test item each, separated by commas: {known}",
    )
    parser.addini("wfstate_backends", f"backends of the store fixtures ({known})", default="memory,file")
    for name, choices, default, what in (
        ("profile", PROFILES, "default", "how much an exploration may do"),
        ("model", MODELS, "posix", "what a disk keeps in a crash, where a test does not say"),
        ("servers", SERVERS, "optional", "whether a test that finds no server is skipped or fails"),
    ):
        known = ", ".join(choices)
        group.addoption(f"--wfstate-{name}", metavar="NAME", help=f"{what}: {known}")
        parser.addini(f"wfstate_{name}", f"{what} ({known})", default=default)
    for name in ("postgres", "redis"):
        what = f"a server for {name}_server to use, in place of WFSTATE_{name.upper()}_URL or one that it starts"
        group.addoption(f"--wfstate-{name}-url", metavar="URL", help=what)
    group.addoption("--wfstate-timeout", metavar="SECONDS", help="how long a call of a store may take in a suite")
    parser.addini("wfstate_timeout", "how long a call of a store may take in a suite, in seconds", default="30")
    group.addoption("--wfstate-replay", metavar="ID", help="check only the disk that a violation's report names")
    group.addoption("--wfstate-keep", metavar="DIR", help="keep the disk of each violation in this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Check the settings, and make the store fixtures, one item per backend chosen."""
    config.pluginmanager.register(_store_fixtures(_backends(config)), "wfstate-stores")
    for name, choices in (("profile", PROFILES), ("model", MODELS), ("servers", SERVERS)):
        _setting(config, name, choices)
    _check_timeout(config)
    config.addinivalue_line(
        "markers", "wfstate(contract, level, fault): a clause of a suite, which is not for use in tests"
    )
    if config.getoption("--wfstate-replay") is not None:
        _check_replay(config.getoption("--wfstate-replay"))
    config.pluginmanager.register(ResultCollector(config.getoption("--wfstate-replay")), "wfstate-told")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the items of a suite the marks of their clauses."""
    if _is_of_suite(item):
        from pytest_wfstate.suites.items import collected

        collected(item)  # type: ignore[arg-type]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out clauses above the level that a suite asks for. What -k and -m leave out was not chosen at all."""
    if any(map(_is_of_suite, items)):
        from pytest_wfstate.suites.items import is_asked

        asked = [not _is_of_suite(item) or is_asked(item) for item in items]  # type: ignore[arg-type]
        not_asked = list(itertools.compress(items, map(operator.not_, asked)))
        items[:] = itertools.compress(items, asked)
        config.hook.pytest_deselected(items=not_asked)
        config.pluginmanager.getplugin("wfstate-told").not_asked.update(_suite_of(item.nodeid) for item in not_asked)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a violation in a suite speak for itself."""
    if not _is_of_suite(item):
        return (yield)
    from pytest_wfstate.suites.items import point_at_users_code, reported

    point_at_users_code(item, call)
    report = yield
    reported(item, call, report)
    return report


def _is_of_suite(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "cls", None), "known_failures")


def _suite_of(nodeid: str) -> str:
    return nodeid.split("::")[-2]


def pytest_report_header(config: pytest.Config) -> str:
    """Say what the fixtures will do."""
    profile, model = _setting(config, "profile", PROFILES), _setting(config, "model", MODELS)
    return f"wfstate: backends {', '.join(_backends(config))}; profile {profile}; model {model}"


class ResultCollector:
    """Collects what explorations and suites came to, from the workers of xdist too, and says it in a line each.

    A run that was to replay a disk and has not is no success.
    """

    def __init__(self, replay: str | None) -> None:
        self._replay = replay
        self._properties: list[tuple[str, Any]] = []
        self._clauses: list[tuple[str, list[tuple[str, Any]]]] = []
        self.not_asked: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._properties += [pair for pair in report.user_properties if pair[0].startswith("wfstate_")]
            if any(name in ("wfstate_clause", "wfstate_forgets") for name, _ in report.user_properties):
                self._clauses.append((_suite_of(report.nodeid), report.user_properties))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear from a worker of xdist: all of them leave out the same."""
        self.not_asked |= Counter(getattr(node, "workeroutput", {}).get("wfstate_not_asked", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["wfstate_not_asked"] = dict(self.not_asked)
        if self._nothing_replayed(session.config) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if any(name == "wfstate_verdict" for name, _ in self._properties):
            from pytest_wfstate.report.explorations import summary

            terminalreporter.write_line(summary(self._properties))
        for line in self._suites():
            terminalreporter.write_line(f"wfstate: {line}")
        if self._nothing_replayed(config):
            terminalreporter.write_line(
                f"wfstate: nothing was replayed. --wfstate-replay={self._replay} was given, and no test that ran came "
                "to the exploration it is of. Run the command at the end of the violation's report: it names the test.",
                red=True,
            )

    def _suites(self) -> list[str]:
        """Say what suites came to: a line each, or one for all if there are many."""
        if not self._clauses and not self.not_asked:
            return []
        from pytest_wfstate.report.scorecard import Item, Row, rows_of

        items = [Item.of(suite, "", "", "", properties) for suite, properties in self._clauses]
        rows = rows_of(items, self.not_asked)
        if len(rows) > _MANY:
            rows = [Row(f"{len(rows)} suites", items, self.not_asked.total())]
        return [row.in_a_line() for row in rows]

    def _nothing_replayed(self, config: pytest.Config) -> bool:
        asked = self._replay is not None and not config.option.collectonly
        return asked and ("wfstate_replayed", True) not in self._properties


def _setting(config: pytest.Config, name: str, known: tuple[str, ...]) -> str:
    option = config.getoption(f"--wfstate-{name}")
    source, value = f"--wfstate-{name}", option
    if option is None:
        source, value = f"the ini setting wfstate_{name}", config.getini(f"wfstate_{name}")
    if value not in known:
        raise pytest.UsageError(f"{source} is {value!r}, which is unknown. Choose among: {', '.join(known)}.")
    return str(value)


def _check_timeout(config: pytest.Config) -> None:
    option = config.getoption("--wfstate-timeout")
    source = "the ini setting wfstate_timeout" if option is None else "--wfstate-timeout"
    text = config.getini("wfstate_timeout") if option is None else option
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(
            f"{source} is {text!r}, which is no number of seconds above 0. It is how long a call of a store may take. "
            "Give one such as 30."
        )


def _check_replay(replay: str) -> None:
    from pytest_wfstate.faults.replay_id import NoReplayId, ReplayId

    try:
        ReplayId.read(replay)
    except NoReplayId as error:
        raise pytest.UsageError(f"--wfstate-replay: {error}") from None


def _backends(config: pytest.Config) -> list[str]:
    chosen = config.getoption("--wfstate-backends")
    source = "--wfstate-backends" if chosen is not None else "the ini setting wfstate_backends"
    text = chosen if chosen is not None else config.getini("wfstate_backends")
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in BACKENDS]
    if unknown or not names:
        what = f"names the unknown backend {unknown[0]!r}" if unknown else "names no backend"
        raise pytest.UsageError(f"{source} {what}. It was {text!r}. Choose among: {', '.join(BACKENDS)}.")
    return names


def _store_fixtures(backends: list[str]) -> types.ModuleType:
    """Build a plugin that holds the store fixtures: their parameters are known only once pytest is configured."""
    plugin = types.ModuleType("pytest_wfstate store fixtures")
    for name, (protocol, what) in STORES.items():
        fixture = pytest.fixture(name=name, params=backends)(_store_fixture(protocol, what))
        setattr(plugin, name, fixture)
    return plugin


def _store_fixture(protocol: str, what: str) -> Callable[..., Iterator[Any]]:
    def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        if request.param not in BACKENDS:
            pytest.fail(
                f"{request.fixturename} was parametrized with the unknown backend {request.param!r}. "
                f"Choose among: {', '.join(BACKENDS)}.",
                pytrace=False,
            )
        with _open_store(protocol, request.param, request, tmp_path_factory) as opened:
            yield opened

    store.__doc__ = f"An empty {protocol}: {what}. One test item per backend of --wfstate-backends."
    return store


def _open_store(
    protocol: str, backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    import pytest_wfstate

    if backend == "memory":
        return getattr(pytest_wfstate, f"Memory{protocol}")()
    if backend in ("postgres", "redis"):
        server = request.getfixturevalue(f"_wfstate_{backend}")
        store, prefix = f"{'Sql' if backend == 'postgres' else 'Redis'}{protocol}", f"h{uuid.uuid4().hex[:15]}"
        _leave_nothing(request, server, prefix)
        return getattr(pytest_wfstate, store)(server.url, prefix=prefix)
    folder = tmp_path_factory.mktemp(protocol.lower())
    if backend == "sqlite":
        return getattr(pytest_wfstate, f"Sql{protocol}")(f"sqlite:///{folder}/state.db")
    return getattr(pytest_wfstate, f"File{protocol}")(folder)


def _leave_nothing(request: pytest.FixtureRequest, server: Server | GivenServer, prefix: str) -> None:
    """Have a server that stays after the tests freed, when the store was closed, of what that has kept."""
    from pytest_wfstate.faults.servers import GivenServer, leftovers

    if isinstance(server, GivenServer):
        request.addfinalizer(lambda: leftovers.remove(server.url, [prefix]))


@pytest.fixture
def frozen_clock(request: pytest.FixtureRequest) -> Iterator[FrozenClock]:
    """The time of day, frozen: `.now`, `.tick(seconds)`, `.move_to(when)`. `asyncio.sleep` still returns."""
    # Before time is frozen: pydantic, if it is first imported then, takes freezegun's datetime for the real one and
    # refuses the real one for the rest of the session.
    importlib.import_module("pytest_wfstate.samples")
    from pytest_wfstate.faults.frozen_clock import START, frozen_clock

    with frozen_clock(getattr(request, "param", START)) as clock:
        yield clock


@pytest.fixture
def fake_disk(request: pytest.FixtureRequest) -> Iterator[FakeDisk]:
    """A disk in memory that can be full, read-only or case-insensitive: `.home`, `.fill()`, `.read_only(folder)`."""
    from pytest_wfstate.faults.fake_disk import fake_disk

    folders = [request.getfixturevalue("tmp_path")] if "tmp_path" in request.fixturenames else []
    with fake_disk(folders) as disk:
        yield disk


@pytest.fixture
def _wfstate_crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """The crash lab of the suites, which no fixture of the user's can take the place of."""
    yield from _crash_lab(request, f"h{uuid.uuid4().hex[:15]}")


@pytest.fixture
def crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """A crash lab: `.explore(workload, check)` checks every disk that a crash could leave; also `.kill`, `.errors`."""
    yield from _crash_lab(request)


@pytest.fixture
def _wfstate_race(request: pytest.FixtureRequest) -> Iterator[Race]:
    """The race lab of the suites, which no fixture of the user's can take the place of."""
    yield from _race_lab(request, f"h{uuid.uuid4().hex[:15]}")


@pytest.fixture
def race(request: pytest.FixtureRequest) -> Iterator[Race]:
    """A race lab: `.explore(setup, clients, check)` runs clients in every order in which they can take turns."""
    yield from _race_lab(request)


def _race_lab(request: pytest.FixtureRequest, home: str = "home") -> Iterator[Race]:
    _need_real_disk()
    from pytest_wfstate.labs.race import Race
    from pytest_wfstate.report.explorations import settings

    config = request.config
    profile, model = _setting(config, "profile", PROFILES), _setting(config, "model", MODELS)
    lab = Race(settings(request, profile, model, home, is_race=True), profile)
    yield lab
    lab.close()


def _crash_lab(request: pytest.FixtureRequest, home: str = "home") -> Iterator[Crash]:
    _need_real_disk()
    from pytest_wfstate.labs.crash import Crash
    from pytest_wfstate.report.explorations import settings

    config = request.config
    lab = Crash(settings(request, _setting(config, "profile", PROFILES), _setting(config, "model", MODELS), home))
    yield lab
    lab.close()


def _need_real_disk() -> None:
    """Fail a test that has asked for a fake disk before: what is imported then would stay on it."""
    from pytest_wfstate.faults.disk.home import NoRealDisk, need_real_disk

    try:
        need_real_disk()
    except NoRealDisk as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def _wfstate_postgres(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """The PostgreSQL server of the store fixtures, which no fixture of the user's can take the place of."""

    def start() -> Server:
        from pytest_wfstate.faults.servers.postgres import PostgresServer

        return PostgresServer()

    yield from _server(request, _given_server(request.config, "postgres"), start)


@pytest.fixture(scope="session")
def _wfstate_redis(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """The Redis server of the store fixtures, which no fixture of the user's can take the place of."""
    yield from _redis(request)


@pytest.fixture(scope="session")
def _wfstate_volatile_redis(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """A Redis server that keeps nothing on disk, for the zoo."""
    yield from _redis(request, "volatile")


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server | GivenServer:
    """A PostgreSQL server of the tests' own: `.url`, `.kill()`, `.restart()`, `.stop()`. Skips if there is none."""
    server: Server | GivenServer = request.getfixturevalue("_wfstate_postgres")
    return server


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> Iterator[Server | GivenServer]:
    """A Redis server of the tests' own: `.url`, `.kill()`, `.restart()`, `.stop()`. Skips if there is none."""
    if hasattr(request, "param"):
        yield from _redis(request, request.param)
    else:
        yield request.getfixturevalue("_wfstate_redis")


def _redis(request: pytest.FixtureRequest, kind: Kind = "durable") -> Iterator[Server | GivenServer]:
    from pytest_wfstate.faults.servers.redis import RedisServer, check_kind

    try:
        check_kind(kind)
    except ValueError as error:
        pytest.fail(f"{request.fixturename} was parametrized wrongly: {error}", pytrace=False)
    given = _given_server(request.config, "redis") if kind == "durable" else None
    yield from _server(request, given, lambda: RedisServer(kind))


def _server(
    request: pytest.FixtureRequest, given: GivenServer | None, start: Callable[[], Server]
) -> Iterator[Server | GivenServer]:
    from pytest_wfstate.faults.servers import NoServer

    if given:
        yield given
        return
    try:
        server = start()
    except NoServer as error:
        if _setting(request.config, "servers", SERVERS) == "required":
            pytest.fail(f"{error} It is a failure because wfstate_servers is required.", pytrace=False)
        pytest.skip(str(error))
    with server:
        yield server


def _given_server(config: pytest.Config, name: str) -> GivenServer | None:
    from pytest_wfstate.faults.servers import GivenServer

    option, variable = f"--wfstate-{name}-url", f"WFSTATE_{name.upper()}_URL"
    if url := config.getoption(option):
        return GivenServer(url, option)
    if url := os.environ.get(variable):
        return GivenServer(url, f"the environment variable {variable}")
    return None
