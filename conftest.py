"""Configuration of this project's own tests."""

from __future__ import annotations

import contextlib
import gc
import os
import unittest.mock
from collections.abc import Generator

import hypothesis
import hypothesis.strategies
import pytest

from pytest_wfstate.faults.disk.home import memory_home

pytest_plugins = ["pytester"]

unfreeze = unittest.mock.Mock(wraps=gc.unfreeze)  # counting what is frozen would take long

# A busy machine must not fail a test, and CI judges a change by the same examples each time.
hypothesis.settings.register_profile(
    "any speed",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
hypothesis.settings.load_profile("any speed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the folders of tests in memory, and let the many Python processes that tests start share bytecode.

    Stores sync thousands of times, and the tests do not depend on the disk. With PYTHONDONTWRITEBYTECODE set, every
    process would compile everything again.
    """
    gc.set_threshold(50_000, 20, 50)  # the usual one scans the tests that were collected again and again
    if hasattr(config, "workerinput"):
        return
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(memory_home()).path
        config.add_cleanup(stack.pop_all().close)
    config.option.basetemp = config.option.basetemp or str(home / "tests")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start three workers for two processors: tests wait for servers and child processes a fifth of the time."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


def pytest_collection_finish() -> None:
    """Exclude everything that exists once tests are collected from garbage collection."""
    use_hypothesis()
    freeze()
    gc.unfreeze = unfreeze


def use_hypothesis() -> None:
    """Make hypothesis register its random numbers, for which it asks the collector who refers to them."""
    settings = hypothesis.settings(max_examples=1, database=None)
    settings(hypothesis.given(hypothesis.strategies.none())(lambda _: None))()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Do so again when tests that search the whole heap, for which it must not be frozen, are over.

    Runs of pytest inside pytest collect garbage when they end, so it is worth it after each of them.
    """
    result = yield
    is_over = nextitem is not None and nextitem.path != item.path
    if unfreeze.called and (is_over or "pytester" in getattr(item, "fixturenames", ())):
        unfreeze.reset_mock()
        freeze()
    return result


def freeze() -> None:
    """Exclude all objects from garbage collection.

    The collector would scan them again and again, and after a fork every page that it scans is copied.
    """
    gc.collect()
    gc.freeze()
