"""Explorations of crashes and races, told: settings from the command line, a live line, one line at the end."""

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
from pytest_wfstate.faults.race import Interleavings
from pytest_wfstate.faults.real_clock import now
from pytest_wfstate.faults.replay_id import ReplayId

Result = Exploration | Interleavings

_PATIENCE = 1.0  # seconds before a live line is shown
_PACE = 0.2


def settings(request: pytest.FixtureRequest, profile: str, model: Any, home: str, *, is_race: bool = False) -> Settings:
    """Give the settings of one test's `crash` or `race` fixture; `home` names the folder that workloads are given."""
    config = request.config
    keep, replay = config.getoption("--wfstate-keep"), _replay(config, is_race=is_race)
    progress = _Progress(config)

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


def summary(properties: Iterable[tuple[str, Any]]) -> str:
    """Say in one line what all explorations of a session came to."""
    found = list(properties)

    def total(name: str) -> float:
        return sum(float(value) for key, value in found if key == name)

    states, seconds, schedules = total("wfstate_states"), total("wfstate_seconds"), total("wfstate_schedules")
    bounded = sum(key == "wfstate_bounded" for key, _ in found)
    cut_off = f", {bounded:,} cut off by a bound" if bounded else ""
    rate = f", {states / seconds:,.0f} states/s" if seconds else ""
    races = sum(key == "wfstate_schedules" for key, _ in found)
    verdicts = [value for key, value in found if key == "wfstate_verdict"]
    told = (
        [f"{_count(len(verdicts) - races, 'workload')}, {_count(int(states), 'state')}"]
        if len(verdicts) > races
        else []
    )
    told += [f"{_count(races, 'race')}, {_count(int(schedules), 'schedule')}"] if races else []
    return (
        f"wfstate: {', '.join(told)}, {_count(verdicts.count('VIOLATED'), 'violation')}, "
        f"{verdicts.count('NOT_MEASURED')} not measured{cut_off}{rate}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _properties(result: Result) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("wfstate_verdict", result.verdict), ("wfstate_skipped", count(result.skipped))]
    if isinstance(result, Exploration):
        found += [
            ("wfstate_model", result.model),
            ("wfstate_states", result.tried),
            ("wfstate_possible", count(result.possible)),
            ("wfstate_seconds", round(result.seconds, 3)),
        ]
    else:
        found += [
            ("wfstate_schedules", result.tried),
            ("wfstate_pruned", result.pruned),
            ("wfstate_race_seconds", round(result.seconds, 3)),
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

    def __call__(self, result: Result) -> None:
        if result.seconds >= _PATIENCE and now() - self._last >= _PACE:
            self._last = now()
            if isinstance(result, Exploration):
                done = f"{result.tried:,} disks checked, {count(result.possible)} combinations"
            else:
                done = f"{result.tried:,} schedules run, {result.skipped:,} waiting"
            self._write(f"wfstate: {done}, {result.seconds:.0f} s")

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
