"""The pipe between the `wfstate` command and a pytest session that it started: one JSON object per line.

The session loads this module as a plugin, by name, and writes; the command reads.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from pytest_wfstate.faults.forking import die_with
from pytest_wfstate.report.scorecard import Item

Event = tuple[Literal["collected", "item", "not asked", "error"], Any]
"""Tests per suite; an `Item`; clauses per suite that were not asked; the text of an error in collection."""


def read(descriptor: int) -> Iterator[Event]:
    """Yield the events of a session until it ends."""
    with os.fdopen(descriptor) as lines:
        for kind, value in map(json.loads, lines):
            yield kind, Item.from_json(value) if kind == "item" else value


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the pipe, and the process at its other end."""
    parser.addoption("--wfstate-stream", type=int, required=True, help="the descriptor to write to")
    parser.addoption("--wfstate-command", type=int, required=True, help="the process that reads, and waits for the end")


def pytest_configure(config: pytest.Config) -> None:
    """Start writing. Without a reader there is nothing to do, so the session ends with the command."""
    die_with(config.getoption("--wfstate-command"))
    config.pluginmanager.register(_Writer(config.getoption("--wfstate-stream")))


class _Writer:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._reports: list[pytest.TestReport] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("error", report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write("collected", Counter(item.nodeid.split("::")[1] for item in session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)
        if report.when == "teardown":
            self._write("item", dataclasses.asdict(_item(self._reports)))
            self._reports = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._write("not asked", session.config.pluginmanager.getplugin("wfstate-results").not_asked)

    def _write(self, kind: str, value: Any) -> None:
        line = json.dumps([kind, value]).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def _item(reports: list[pytest.TestReport]) -> Item:
    deciding = next((report for report in reports if not report.passed), reports[-1])
    _, suite, name = reports[-1].nodeid.split("::", 2)
    return Item.of(suite, name, deciding.outcome, _text(deciding), reports[-1].user_properties)


def _text(report: pytest.TestReport) -> str:
    if report.skipped:
        return str(getattr(report, "wasxfail", "") or report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
    return report.longreprtext
