"""Explorations of schedules: the bounds, which are counts, and the safety net."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import NotMeasured, Outcome, Race, RaceResult
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.faults.race import explorer
from pytest_wfstate.labs.lab import Settings


def client(home: Path) -> None:
    for number in (1, 2, 3):
        (home / "note").write_text(str(number))


class SlowRace:
    """Explores two clients on a machine on which each check takes a second."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self.results: list[RaceResult] = []
        self.schedules: list[Any] = []

    def explore(self, **options: Any) -> RaceResult:
        race = Race(Settings(bounds=Bounds(**options), done=self.results.append))
        try:
            return race.explore(None, [client, client], self._check)
        finally:
            race.close()

    def _check(self, outcome: Outcome) -> None:
        self._clock[0] += 1
        self.schedules.append([step.client for step in outcome.steps])


@pytest.fixture
def slow_race(monkeypatch: pytest.MonkeyPatch) -> SlowRace:
    clock = [0.0]
    monkeypatch.setattr(explorer, "now", lambda: clock[0])
    return SlowRace(clock)


@pytest.mark.parametrize("schedules", [1, 2, 10])
def test_a_bound_cuts_off_the_tail(slow_race: SlowRace, schedules: int) -> None:
    whole = slow_race.explore()
    everything = slow_race.schedules.copy()
    slow_race.schedules.clear()
    explored = slow_race.explore(schedules=schedules)
    assert (whole.verdict, whole.skipped) == ("CLEAN", 0)
    assert slow_race.schedules == everything[:schedules]
    assert explored.tried == schedules < whole.tried
    assert explored.skipped > 0
    assert explored.verdict == "CLEAN"
    assert explored.bounded_to() == f"{schedules} of at least {schedules + explored.skipped} schedules"
    assert whole.bounded_to() == ""


def test_one_schedule_is_run_at_the_least(slow_race: SlowRace) -> None:
    assert slow_race.explore(schedules=0).tried == 1


def test_a_race_that_the_safety_net_stops_is_incomplete(slow_race: SlowRace) -> None:
    with pytest.raises(NotMeasured, match=r"^INCOMPLETE.*\n- the safety net of 5 s .* Not tried: at least \d+ schedul"):
        slow_race.explore(seconds=5)
    (explored,) = slow_race.results
    assert (explored.verdict, explored.tried) == ("INCOMPLETE", 6)


def test_a_race_that_ends_in_time_is_clean(slow_race: SlowRace) -> None:
    whole = slow_race.explore()
    assert slow_race.explore(seconds=whole.tried - 1).verdict == "CLEAN"
