"""The pytest plugin: options, markers and fixtures.

It imports nothing of the package before a test asks for it, so that a run which uses none of it pays nothing.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_wfstate.faults.crash import Crash
    from pytest_wfstate.faults.fake_disk import FakeDisk
    from pytest_wfstate.faults.frozen_clock import FrozenClock

BACKENDS = ("memory", "file")
PROFILES = ("quick", "default", "thorough")
MODELS = ("kill", "ext4", "xfs", "posix")

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
    ):
        known = ", ".join(choices)
        group.addoption(f"--wfstate-{name}", metavar="NAME", help=f"{what}: {known}")
        parser.addini(f"wfstate_{name}", f"{what} ({known})", default=default)
    group.addoption("--wfstate-replay", metavar="ID", help="check only the disk that a violation's report names")
    group.addoption("--wfstate-keep", metavar="DIR", help="keep the disk of each violation in this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Check the settings, and make the store fixtures, one item per backend chosen."""
    config.pluginmanager.register(_store_fixtures(_backends(config)), "wfstate-stores")
    for name, choices in (("profile", PROFILES), ("model", MODELS)):
        _setting(config, name, choices)
    if config.getoption("--wfstate-replay") is not None:
        _check_replay(config.getoption("--wfstate-replay"))
    config.pluginmanager.register(_Told(), "wfstate-told")


def pytest_report_header(config: pytest.Config) -> str:
    """Say what the fixtures will do."""
    profile, model = _setting(config, "profile", PROFILES), _setting(config, "model", MODELS)
    return f"wfstate: backends {', '.join(_backends(config))}; profile {profile}; model {model}"


class _Told:
    """Collects what explorations came to, from the workers of xdist too, and says it in one line."""

    def __init__(self) -> None:
        self._properties: list[tuple[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._properties += [pair for pair in report.user_properties if pair[0].startswith("wfstate_")]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._properties:
            from pytest_wfstate.report.crashes import summary

            terminalreporter.write_line(summary(self._properties))


def _setting(config: pytest.Config, name: str, known: tuple[str, ...]) -> str:
    option = config.getoption(f"--wfstate-{name}")
    source, value = f"--wfstate-{name}", option
    if option is None:
        source, value = f"the ini setting wfstate_{name}", config.getini(f"wfstate_{name}")
    if value not in known:
        raise pytest.UsageError(f"{source} is {value!r}, which is unknown. Choose among: {', '.join(known)}.")
    return str(value)


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
        with _open_store(protocol, request.param, tmp_path_factory) as opened:
            yield opened

    store.__doc__ = f"An empty {protocol}: {what}. One test item per backend of --wfstate-backends."
    return store


def _open_store(protocol: str, backend: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    module = importlib.import_module(f"pytest_wfstate.stores.{backend}")
    if backend == "memory":
        return getattr(module, f"Memory{protocol}")()
    return getattr(module, f"File{protocol}")(tmp_path_factory.mktemp(protocol.lower()))


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
def fake_disk() -> Iterator[FakeDisk]:
    """A disk in memory that can be full, read-only or case-insensitive: `.home`, `.fill()`, `.read_only(folder)`."""
    from pytest_wfstate.faults.fake_disk import fake_disk

    with fake_disk() as disk:
        yield disk


@pytest.fixture
def crash(request: pytest.FixtureRequest) -> Iterator[Crash]:
    """A crash lab: `.explore(workload, check)` checks every disk that a crash could leave; also `.kill`, `.errors`."""
    from pytest_wfstate.faults.crash import Crash
    from pytest_wfstate.report.crashes import settings

    config = request.config
    lab = Crash(settings(request, _setting(config, "profile", PROFILES), _setting(config, "model", MODELS)))
    yield lab
    lab.close()
