"""A plugin for a pytest that another process has started: it tells that process, line by line, what suites come to.

It is loaded by name (`-p pytest_wfstate.cli.stream`), and is no part of a user's pytest.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from typing import Any

import pytest

from pytest_wfstate.report.scorecard import Item


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the pipe."""
    parser.addoption("--wfstate-stream", type=int, required=True, help="the descriptor to write to")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to tell."""
    config.pluginmanager.register(_Stream(config.getoption("--wfstate-stream")))


class _Stream:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._reports: list[pytest.TestReport] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell("error", report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell("collected", Counter(item.nodeid.split("::")[1] for item in session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)
        if report.when == "teardown":
            self._tell("item", dataclasses.asdict(_item(self._reports)))
            self._reports = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._tell("not asked", session.config.pluginmanager.getplugin("wfstate-told").not_asked)

    def _tell(self, what: str, value: Any) -> None:
        line = json.dumps({"what": what, "value": value}).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def _item(reports: list[pytest.TestReport]) -> Item:
    telling = next((one for one in reports if not one.passed), reports[-1])
    _, suite, name = reports[-1].nodeid.split("::", 2)
    return Item.of(suite, name, telling.outcome, _text(telling), reports[-1].user_properties)


def _text(report: pytest.TestReport) -> str:
    if report.skipped:
        return str(getattr(report, "wasxfail", "") or report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
    return report.longreprtext
