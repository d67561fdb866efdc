"""The labs that the fixtures hand out, set up from pytest's options; results become properties of the test.

A lab is imported only once the disk is known to be real: whatever is imported on a fake disk stays on it.
"""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_wfstate.faults.bounds import PROFILES
from pytest_wfstate.faults.disk.home import Home, NoRealDisk, need_real_disk
from pytest_wfstate.faults.remembered import Remembered
from pytest_wfstate.faults.result import Result, count
from pytest_wfstate.labs import options

if TYPE_CHECKING:
    from pytest_wfstate.labs.crash import Crash
    from pytest_wfstate.labs.lab import Settings
    from pytest_wfstate.labs.race import Race


_MOST_CHARACTERS = 150  # of a test's name, in that of a folder


class Progress(Protocol):
    """Shows how far an exploration is."""

    def __call__(self, result: Result) -> None:
        """Show it."""

    def clear(self) -> None:
        """Remove what is shown."""


def crash_lab(request: pytest.FixtureRequest, progress: Progress, home: str = "home") -> Iterator[Crash]:
    """Yield the crash lab of one test; `home` names the folder that workloads get."""
    _need_real_disk()
    from pytest_wfstate.labs.crash import Crash

    lab = Crash(_settings(request, progress, home, is_race=False))
    yield lab
    lab.close()


def race_lab(request: pytest.FixtureRequest, progress: Progress, home: str = "home") -> Iterator[Race]:
    """Yield the race lab of one test; `home` names the folder that clients get."""
    _need_real_disk()
    from pytest_wfstate.labs.race import Race

    lab = Race(_settings(request, progress, home, is_race=True), options.profile(request.config))
    yield lab
    lab.close()


def unique_home() -> str:
    """Return a new name for a home, which a store can use as a prefix on a server."""
    return f"h{uuid.uuid4().hex[:15]}"


def _need_real_disk() -> None:
    try:
        need_real_disk()
    except NoRealDisk as error:
        pytest.fail(str(error), pytrace=False)


def _settings(request: pytest.FixtureRequest, progress: Progress, home: str, *, is_race: bool) -> Settings:
    from pytest_wfstate.labs.lab import Settings

    replay, keep = options.replay_id(request.config), request.config.getoption("--wfstate-keep")

    def done(result: Result) -> None:
        progress.clear()
        request.node.user_properties.extend(_properties(result))
        if covered := result.bounded_to():
            request.node.add_report_section(
                "call", "wfstate", f"No violation was found, but a bound cut the search off: {covered}.\n"
            )

    return Settings(
        model=options.model(request.config),
        bounds=PROFILES[options.profile(request.config)],
        home=home,
        replay_with=options.replay_command(request.node),
        remembered=Remembered(request.node.nodeid, *options.corpus(request.config)),
        replay=replay if replay and (replay.race is not None) == is_race else None,
        keep=functools.partial(_keep, Path(keep), request.node.nodeid) if keep else None,
        progress=progress,
        done=done,
    )


def _properties(result: Result) -> list[tuple[str, Any]]:
    properties: list[tuple[str, Any]] = [
        ("wfstate_verdict", result.verdict),
        ("wfstate_skipped", count(result.skipped)),
        *((f"wfstate_{name}", value) for name, value in result.numbers().items()),
    ]
    if covered := result.bounded_to():
        properties.append(("wfstate_bounded_to", covered))
    if result.replayed:
        properties.append(("wfstate_replayed", True))
    if result.replay:
        properties.append(("wfstate_replay", result.replay))
    return properties


def _keep(folder: Path, test: str, home: Home) -> str:
    """Copy a disk to a new folder, and return its path."""
    name = re.sub(r"[^\w.-]+", "-", test)[-_MOST_CHARACTERS:]
    for number in itertools.count(1):
        kept = folder / (name if number == 1 else f"{name}-{number}")
        try:
            kept.mkdir(parents=True)
        except FileExistsError:
            continue  # of an earlier violation, or of a test whose name differs in other characters
        shutil.copytree(home.path, kept, symlinks=True, dirs_exist_ok=True)
        break
    return str(kept)
