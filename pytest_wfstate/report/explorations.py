"""Explorations of crashes and races, told: settings from the command line, a live line, one line at the end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.faults.disk.home import Home
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.replay_id import ReplayId
from pytest_wfstate.faults.result import Result, count
from pytest_wfstate.labs.settings import Settings

_PATIENCE = 1.0  # seconds before a live line is shown
_PACE = 0.2


def settings(request: pytest.FixtureRequest, profile: str, model: Any, home: str, *, is_race: bool = False) -> Settings:
    """Give the settings of one test's `crash` or `race` fixture; `home` names the folder that workloads are given."""
    config = request.config
    keep, replay = config.getoption("--wfstate-keep"), _replay(config, is_race=is_race)
    progress = _ProgressLine(config)

    def done(result: Result) -> None:
        progress.clear()
        request.node.user_properties.extend(_properties(result))

    return Settings(
        model=model,
        bounds=PROFILES[profile],
        home=home,
        test=request.node.nodeid,
        replay=replay,
        keep=_keeper(request, Path(keep)) if keep else None,
        progress=progress,
        done=done,
    )


def _replay(config: pytest.Config, *, is_race: bool) -> ReplayId | None:
    """Give the replay id, if it is of a violation that this lab finds."""
    text = config.getoption("--wfstate-replay")
    found = ReplayId.read(text) if text else None
    return found if found and (found.race is not None) == is_race else None


_COUNTED = {
    "states": ("workload", "state"),
    "schedules": ("race", "schedule"),
    "calls": ("storm", "call"),
}
"""What is counted: of how many things, and what they are made of."""


def summary(properties: Iterable[tuple[str, Any]]) -> str:
    """Say in one line what all explorations of a session came to."""
    found = list(properties)
    told = []
    for name, (one, part) in _COUNTED.items():
        numbers = [int(value) for key, value in found if key == f"wfstate_{name}"]
        told += [f"{_count(len(numbers), one)}, {_count(sum(numbers), part)}"] if numbers else []
    verdicts = [value for key, value in found if key == "wfstate_verdict"]
    bounded = sum(key == "wfstate_bounded" for key, _ in found)
    cut_off = f", {bounded:,} cut off by a bound" if bounded else ""
    return (
        f"wfstate: {', '.join(told)}, {_count(verdicts.count('VIOLATED'), 'violation')}, "
        f"{verdicts.count('NOT_MEASURED')} not measured{cut_off}{_rate(found)}"
    )


def _rate(found: list[tuple[str, Any]]) -> str:
    """Say how many disks were checked in a second."""
    seconds = sum(float(value) for key, value in found if key == "wfstate_seconds")
    states = sum(int(value) for key, value in found if key == "wfstate_states")
    return f", {states / seconds:,.0f} states/s" if seconds and states else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _properties(result: Result) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("wfstate_verdict", result.verdict), ("wfstate_skipped", count(result.skipped))]
    found += [(f"wfstate_{name}", value) for name, value in result.numbers().items()]
    if result.verdict == "CLEAN" and result.skipped:
        found.append(("wfstate_bounded", True))
    if result.replayed:
        found.append(("wfstate_replayed", True))
    return [*found, ("wfstate_replay", result.replay)] if result.replay else found


def _keeper(request: pytest.FixtureRequest, folder: Path) -> Any:
    def keep(home: Home) -> str:
        kept = folder / re.sub(r"[^\w.-]+", "-", request.node.name)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(home.path, kept, symlinks=True)
        return str(kept)

    return keep


class _ProgressLine:
    """A line of its own that is written over and over, on a terminal, while an exploration takes its time."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._last = 0.0
        self._width = 0

    def __call__(self, result: Result) -> None:
        if result.seconds >= _PATIENCE and now() - self._last >= _PACE:
            self._last = now()
            self._write(f"wfstate: {result.progress()}, {result.seconds:.0f} s")

    def clear(self) -> None:
        """Take the line away, if there is one."""
        if self._width:
            self._write("")

    def _write(self, line: str) -> None:
        reporter = self._plugins.getplugin("terminalreporter")
        if reporter is None or not reporter.isatty:
            return
        with self._plugins.getplugin("capturemanager").global_and_fixture_disabled():
            if not self._width:
                reporter.ensure_newline()
            reporter.write(f"\r{line:{self._width}}" + ("" if line else "\r"), flush=True)
        self._width = len(line)
