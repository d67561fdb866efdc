"""Storms on stores: the shipped ones weather them, and those of the zoo do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_wfstate
from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.race import Race
from pytest_wfstate.stores.file import FilePausedStore
from tests.unit.suites.homes import Memories

STORES = {
    "effects": "EffectStore",
    "paused": "PausedStore",
    "resume": "ResumeStore",
    "snapshots": "SnapshotStore",
    "runs": "RunStore",
}


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """How long a storm goes on."""
    return 20.0 if request.config.getoption("--wfstate-profile") == "thorough" else 0.6


@pytest.mark.parametrize("contract", STORES)
def test_stores_on_files_weather_a_storm(race: Race, contract: str, seconds: float) -> None:
    result = race.storm(getattr(pytest_wfstate, f"File{STORES[contract]}"), contract, seconds=seconds)
    assert result.verdict == "CLEAN"
    assert result.calls >= 200
    assert result.killed


@pytest.mark.parametrize("contract", STORES)
def test_stores_in_sqlite_weather_a_storm(race: Race, contract: str, seconds: float) -> None:
    store = getattr(pytest_wfstate, f"Sql{STORES[contract]}")
    result = race.storm(lambda home: store(f"sqlite:///{home}/state.db"), contract, seconds=seconds)
    assert result.verdict == "CLEAN"
    assert result.calls >= 200
    assert result.killed


@pytest.mark.parametrize("contract", STORES)
def test_stores_in_memory_weather_a_storm_of_threads(race: Race, contract: str, seconds: float) -> None:
    memories: Memories[Any] = Memories(getattr(pytest_wfstate, f"Memory{STORES[contract]}"))
    result = race.storm(lambda home: memories[home].handle(), contract, seconds=seconds, medium="memory")
    assert result.verdict == "CLEAN"
    assert result.calls >= 200


class ReadsEachFile(FilePausedStore):
    """Lists what it can read, and fails if a file was claimed meanwhile."""

    def list(self) -> list[str]:
        files = sorted(self.directory.glob("*.json"))
        return [PausedWorkflow.model_validate_json(file.read_bytes()).run_id for file in files]


class ForgetsOldRuns(FilePausedStore):
    """Makes room for new runs."""

    def save(self, paused: PausedWorkflow) -> None:
        super().save(paused)
        of_this_round = paused.run_id.partition("-")[0] + "-"
        for file in self.directory.glob("*.json"):
            if not file.name.startswith(of_this_round):
                file.unlink(missing_ok=True)


class ClaimsForAll(FilePausedStore):
    """Leaves the run paused that it claims."""

    def claim(self, run_id: str) -> PausedWorkflow | None:
        return self.load(run_id)


def opens_badly(home: Path) -> Any:
    raise PermissionError(f"no way into {home.name}")


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (ReadsEachFile, "a call ended in an error, with nothing in its way but others:\n  worker .*: list"),
        (ForgetsOldRuns, "at the end of the storm. Nobody had used that id since"),
        (ClaimsForAll, "These results are impossible in any order of the calls"),
    ],
)
def test_a_bug_is_told(race: Race, store: Callable[[Path], Any], told: str) -> None:
    with pytest.raises(RaceBug, match=told):
        race.storm(store, "paused", seconds=30 if store is ReadsEachFile else 1)


def test_a_store_that_cannot_be_opened_raises_as_it_is(race: Race) -> None:
    with pytest.raises(PermissionError, match="no way into h"):
        race.storm(opens_badly, "paused", seconds=1)


@pytest.fixture
def race() -> Iterator[Race]:
    lab = Race()
    yield lab
    lab.close()
