"""Storms on stores: the shipped ones pass, and those with a bug fail."""

from __future__ import annotations

import collections
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import pytest_wfstate
from pytest_wfstate import CannotCompare
from pytest_wfstate.contracts.base import Contract, Operation
from pytest_wfstate.contracts.paused import PausedWorkflow
from pytest_wfstate.faults.bounds import PROFILES, NotMeasured
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.lab import Settings
from pytest_wfstate.labs.race import Race
from pytest_wfstate.labs.storm import Medium
from pytest_wfstate.specs.arguments import only_an_id
from pytest_wfstate.stores.file import FilePausedStore

STORES = {
    "effects": "EffectStore",
    "paused": "PausedStore",
    "resume": "ResumeStore",
    "snapshots": "SnapshotStore",
    "runs": "RunStore",
}


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> int:
    """How many calls a storm makes: more than one round."""
    return 20_000 if request.config.getoption("--wfstate-profile") == "thorough" else 240


def file_store(name: str) -> Callable[[Path], Any]:
    return getattr(pytest_wfstate, f"File{name}")  # type: ignore[no-any-return]


def sqlite_store(name: str) -> Callable[[Path], Any]:
    return lambda home: getattr(pytest_wfstate, f"Sql{name}")(f"sqlite:///{home}/state.db")


def memory_store(name: str) -> Callable[[Path], Any]:
    stores: dict[Path, Any] = collections.defaultdict(getattr(pytest_wfstate, f"Memory{name}"))
    return lambda home: stores[home].handle()


@pytest.mark.parametrize("contract", STORES)
@pytest.mark.parametrize("opening", [file_store, sqlite_store, memory_store])
def test_shipped_stores_pass(race: Race, opening: Any, contract: str, calls: int) -> None:
    medium: Medium = "memory" if opening is memory_store else "disk"
    result = race.storm(opening(STORES[contract]), contract, calls=calls, medium=medium)
    assert result.verdict == "CLEAN"
    assert result.calls >= calls
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
        race.storm(store, "paused", calls=240 if store is ForgetsOldRuns else 20_000)


class Queue:
    """First in, first out; whatever is left stays for the next round."""

    def __init__(self) -> None:
        self.items: collections.deque[str] = collections.deque()

    def put(self, item: str) -> None:
        self.items.append(item)

    def pop(self) -> str | None:
        return self.items.popleft() if self.items else None

    def look(self) -> list[str]:
        return list(self.items)


class SqliteQueue:
    """A queue in a table; each call is one transaction."""

    def __init__(self, home: Path) -> None:
        self._db = sqlite3.connect(home / "queue.db", isolation_level=None, timeout=30)
        self._db.execute("CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT)")

    def put(self, item: str) -> None:
        self._db.execute("INSERT INTO queue (item) VALUES (?)", [item])

    def pop(self) -> str | None:
        oldest = "(SELECT min(id) FROM queue)"
        row = self._db.execute(f"DELETE FROM queue WHERE id = {oldest} RETURNING item").fetchall()
        return row[0][0] if row else None

    def look(self) -> list[str]:
        return [item for (item,) in self._db.execute("SELECT item FROM queue ORDER BY id")]

    def close(self) -> None:
        self._db.close()


class ForgetsWhatIsLeft(SqliteQueue):
    """Deletes the items of earlier rounds."""

    def put(self, item: str) -> None:
        super().put(item)
        self._db.execute("DELETE FROM queue WHERE item < ?", [item.partition("-")[0]])


def queue_contract(keys: Callable[..., list[str]] | None) -> Contract:
    put = Operation("put", only_an_id, mutates=True, required=True, keys=keys)
    pop = Operation("pop", lambda _: st.just(()), mutates=True, positional=0, keys=keys)
    look = Operation("look", lambda _: st.just(()), positional=0, keys=keys)
    return Contract("queue", [put, pop, look], lambda _: Queue(), lambda id_, _: put(id_), lambda _: [look()])


@pytest.mark.parametrize("keys", [None, lambda *_: ["the queue"]], ids=["whole", "with a key"])
def test_what_a_round_leaves_is_there_in_the_next(race: Race, keys: Callable[..., list[str]] | None) -> None:
    assert race.storm(SqliteQueue, queue_contract(keys), calls=240).verdict == "CLEAN"
    with pytest.raises(RaceBug, match="These results are impossible"):
        race.storm(ForgetsWhatIsLeft, queue_contract(keys), calls=600)


class LooksLater(SqliteQueue):
    """Returns a generator, which is read to the end."""

    def look(self) -> Any:
        yield from super().look()


class ShowsConnection(SqliteQueue):
    """Returns something that hides what it holds."""

    def look(self) -> Any:
        return self._db


def test_what_an_iterator_yields_is_the_result(race: Race) -> None:
    assert race.storm(LooksLater, queue_contract(None), calls=200).verdict == "CLEAN"


def test_a_result_that_cannot_be_compared_is_not_blamed_on_the_store(race: Race) -> None:
    with pytest.raises(CannotCompare, match=r"^look\(\) returned what cannot be compared"):
        race.storm(ShowsConnection, queue_contract(None), calls=200)


def test_a_storm_makes_as_many_calls_as_it_is_asked_for(race: Race) -> None:
    counts = [race.storm(memory_store("ResumeStore"), "resume", calls=210, medium="memory") for _ in range(2)]
    assert [(result.calls, result.rounds, result.left) for result in counts] == [(210, 2, 0)] * 2


def test_a_storm_that_the_safety_net_stops_is_incomplete() -> None:
    race = Race(Settings(bounds=dataclasses.replace(PROFILES["default"], seconds=0)))
    with pytest.raises(NotMeasured, match=r"^INCOMPLETE(.|\n)*the safety net of 0 s .* Not tried: 400 calls"):
        race.storm(memory_store("ResumeStore"), "resume", calls=600, medium="memory")
    with pytest.raises(pytest.skip.Exception, match=r"^INCOMPLETE: the safety net of 0 s"):
        race.storm(memory_store("ResumeStore"), "resume", calls=201, medium="memory", unmeasured="skip")
    with pytest.raises(ValueError, match=r"unmeasured is 'pass', which is unknown\. One of: fail, skip\."):
        race.storm(memory_store("ResumeStore"), "resume", calls=1, medium="memory", unmeasured="pass")  # type: ignore[arg-type]


def test_a_storm_that_cannot_be_judged_is_incomplete(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_wfstate.oracle.rounds.MOST_COST", 0)
    with pytest.raises(NotMeasured, match=r"round 1 was not judged: the search .* Not made: 400 calls"):
        race.storm(memory_store("ResumeStore"), "resume", calls=600, medium="memory")


def test_an_error_in_open_is_raised(race: Race) -> None:
    with pytest.raises(PermissionError, match="no way into h"):
        race.storm(opens_badly, "paused", calls=1)


@pytest.fixture
def race() -> Iterator[Race]:
    lab = Race()
    yield lab
    lab.close()
