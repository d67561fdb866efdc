"""Storms on stores: the shipped ones pass, and those with a bug fail."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_wfstate
from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.race import Race
from pytest_wfstate.labs.storm import Medium
from pytest_wfstate.stores.file import FilePausedStore

STORES = {
    "effects": "EffectStore",
    "paused": "PausedStore",
    "resume": "ResumeStore",
    "snapshots": "SnapshotStore",
    "runs": "RunStore",
}


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """How long a storm lasts."""
    return 20.0 if request.config.getoption("--wfstate-profile") == "thorough" else 0.6


def file_store(name: str) -> Callable[[Path], Any]:
    return getattr(pytest_wfstate, f"File{name}")  # type: ignore[no-any-return]


def sqlite_store(name: str) -> Callable[[Path], Any]:
    return lambda home: getattr(pytest_wfstate, f"Sql{name}")(f"sqlite:///{home}/state.db")


def memory_store(name: str) -> Callable[[Path], Any]:
    stores: dict[Path, Any] = collections.defaultdict(getattr(pytest_wfstate, f"Memory{name}"))
    return lambda home: stores[home].handle()


@pytest.mark.parametrize("contract", STORES)
@pytest.mark.parametrize("opening", [file_store, sqlite_store, memory_store])
def test_shipped_stores_pass(race: Race, opening: Any, contract: str, seconds: float) -> None:
    medium: Medium = "memory" if opening is memory_store else "disk"
    result = race.storm(opening(STORES[contract]), contract, seconds=seconds, medium=medium)
    assert result.verdict == "CLEAN"
    assert result.calls >= 200
    assert bool(result.killed) == (medium == "disk")


class ReadsEachFile(FilePausedStore):
    """Reads each file to list it, and fails if one is claimed meanwhile."""

    def list(self) -> list[str]:
        files = sorted(self.directory.glob("*.json"))
        return [PausedWorkflow.model_validate_json(file.read_bytes()).run_id for file in files]


class ForgetsOldRuns(FilePausedStore):
    """Deletes the runs of earlier rounds."""

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        of_this_round = paused.run_id.partition("-")[0] + "-"
        for file in self.directory.glob("*.json"):
            if not file.name.startswith(of_this_round):
                file.unlink(missing_ok=True)


class ClaimsForAll(FilePausedStore):
    """Leaves a claimed run paused."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return self.load(run_id)


def opens_badly(home: Path) -> Any:
    raise PermissionError(f"no way into {home.name}")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (ReadsEachFile, "A call failed although its worker was not killed:\n  worker .*: list"),
        (ForgetsOldRuns, "at the end of the storm. No call used that id in between"),
        (ClaimsForAll, "These results are impossible in any order of the calls"),
    ],
)
def test_bugs_are_found(race: Race, store: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(RaceBug, match=message):
        race.storm(store, "paused", seconds=30 if store is ReadsEachFile else 3)


def test_an_error_in_open_is_raised(race: Race) -> None:
    with pytest.raises(PermissionError, match="no way into h"):
        race.storm(opens_badly, "paused", seconds=1)


@pytest.fixture
def race() -> Iterator[Race]:
    lab = Race()
    yield lab
    lab.close()
