"""What the tests of the plugin share: pytest inside pytest, with only our plugin and those of our dependencies."""

from __future__ import annotations

# Loaded once and here: an inner run drops from sys.modules whatever it was the first to import.
import dataclasses
import tarfile  # noqa: F401
from collections.abc import Callable

import hypothesis  # noqa: F401
import pytest

import pytest_wfstate.faults.fake_disk
import pytest_wfstate.faults.frozen_clock
import pytest_wfstate.faults.servers.postgres
import pytest_wfstate.faults.servers.redis
import pytest_wfstate.labs.crash
import pytest_wfstate.labs.fixtures
import pytest_wfstate.labs.servers
import pytest_wfstate.labs.stores
import pytest_wfstate.report.progress
import pytest_wfstate.report.scorecard
import pytest_wfstate.samples
import pytest_wfstate.stores.adapt
import pytest_wfstate.stores.file
import pytest_wfstate.stores.memory
import pytest_wfstate.stores.redis
import pytest_wfstate.stores.sql.effects
import pytest_wfstate.stores.sql.postgres
import pytest_wfstate.suites.pytest_items  # noqa: F401
from pytest_wfstate.faults.bounds import PROFILES
from tests.plugin.bank import NOTES

NO_PLUGINS_OF_DEPENDENCIES = ("-p", "no:hypothesispytest", "-p", "no:fakefs", "-p", "no:pytest_fakefs")

# The plugins to leave out of a run in this process, and of runs in processes of their own, with xdist and without.
# There, those of our dependencies are left out too: they take twice as long to load as all the rest.
OTHERS = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:xdist")
WITH_XDIST = ("-p", "no:asyncio", "-p", "no:anyio", *NO_PLUGINS_OF_DEPENDENCIES)
ALONE = (*WITH_XDIST, "-p", "no:xdist")

Run = Callable[..., pytest.RunResult]
Items = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner runs of pytest print what they print outside CI: there, a summary line is cut to the terminal's width."""
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def small_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner runs explore little: what they print is tested here, not what they find."""
    quick = dataclasses.replace(PROFILES["quick"], advised=20)
    monkeypatch.setitem(PROFILES, "default", quick.share(5))
    monkeypatch.setitem(PROFILES, "quick", quick.share(10))


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest in this process, in the folder of `pytester`."""
    return lambda *options: pytester.runpytest_inprocess(*OTHERS, *options)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no line of the summary is cut."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def notes(pytester: pytest.Pytester) -> None:
    """A module `notes` for the tests of `bank.py`, which they import."""
    pytester.makepyfile(notes=NOTES)


@pytest.fixture
def items(run: Run) -> Items:
    """List the items that pytest collects, without the name of their file."""

    def collect(*options: str) -> list[str]:
        result = run("--collect-only", "-q", *options)
        return [line.partition("::")[2] for line in result.outlines if "::" in line]

    return collect
