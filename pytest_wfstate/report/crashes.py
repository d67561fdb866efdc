"""Explorations, told: settings from the command line, a live line while one takes long, one line at the end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate.faults.crash import Settings
from pytest_wfstate.faults.disk import Home
from pytest_wfstate.faults.explore import PROFILES, Exploration, count
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.replay_id import ReplayId

_PATIENCE = 1.0  # seconds before a live line is shown
_PACE = 0.2


def settings(request: pytest.FixtureRequest, profile: str, model: Any, home: str) -> Settings:
    """Give the settings of one test's `crash` fixture; `home` names the folder that workloads are given."""
    config = request.config
    keep, replay = config.getoption("--wfstate-keep"), config.getoption("--wfstate-replay")
    progress = _Progress(config)

    def done(result: Exploration) -> None:
        progress.clear()
        request.node.user_properties.extend(_properties(result))

    return Settings(
        model=model,
        bounds=PROFILES[profile],
        home=home,
        test=request.node.nodeid,
        replay=ReplayId.read(replay) if replay else None,
        keep=_keeper(request, Path(keep)) if keep else None,
        progress=progress,
        done=done,
    )


def summary(properties: Iterable[tuple[str, Any]]) -> str:
    """Say in one line what all explorations of a session came to."""
    found = list(properties)

    def total(name: str) -> float:
        return sum(float(value) for key, value in found if key == name)

    verdicts = [value for key, value in found if key == "wfstate_verdict"]
    states, seconds = total("wfstate_states"), total("wfstate_seconds")
    bounded = sum(key == "wfstate_bounded" for key, _ in found)
    cut_off = f", {bounded:,} cut off by a bound" if bounded else ""
    rate = f", {states / seconds:,.0f} states/s" if seconds else ""
    return (
        f"wfstate: {_count(len(verdicts), 'workload')}, {_count(int(states), 'state')}, "
        f"{_count(verdicts.count('VIOLATED'), 'violation')}, "
        f"{verdicts.count('NOT_MEASURED')} not measured{cut_off}{rate}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _properties(result: Exploration) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [
        ("wfstate_verdict", result.verdict),
        ("wfstate_model", result.model),
        ("wfstate_states", result.tried),
        ("wfstate_possible", count(result.possible)),
        ("wfstate_skipped", count(result.skipped)),
        ("wfstate_seconds", round(result.seconds, 3)),
    ]
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


class _Progress:
    """A line of its own that is written over and over, on a terminal, while an exploration takes its time."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._last = 0.0
        self._width = 0

    def __call__(self, result: Exploration) -> None:
        if result.seconds >= _PATIENCE and now() - self._last >= _PACE:
            self._last = now()
            combinations = f"{count(result.possible)} combinations"
            self._write(f"wfstate: {result.tried:,} disks checked, {combinations}, {result.seconds:.0f} s")

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
