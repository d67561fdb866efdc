"""What the labs share: bounds that several explorations divide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_wfstate import Crash, Race
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.labs.lab import Settings


def small(home: Path) -> None:
    (home / "note").touch()


def large(home: Path) -> None:
    for number in range(6):
        (home / f"{number}.tmp").write_text("text")
        os.replace(home / f"{number}.tmp", home / f"{number}")


@pytest.fixture
def crash() -> Iterator[Crash]:
    lab = Crash(Settings(bounds=Bounds(states=60, looks=600)))
    yield lab
    lab.close()


class TestDividedBounds:
    def test_each_exploration_gets_an_equal_part(self, crash: Crash) -> None:
        crash.divide(3)
        assert [crash.explore(large, lambda _: None).tried for _ in range(3)] == [20, 20, 20]

    def test_what_one_does_not_use_is_for_those_after_it(self, crash: Crash) -> None:
        crash.divide(3)
        used = crash.explore(small, lambda _: None).tried
        assert used < 20
        left = 60 - used
        second = crash.explore(large, lambda _: None).tried
        assert second == -(-left // 2)
        assert crash.explore(large, lambda _: None).tried == left - second

    def test_combinations_are_divided_as_well(self) -> None:
        lab = Crash(Settings(bounds=Bounds(looks=90)))
        lab.divide(3)
        used = lab.explore(small, lambda _: None).looked
        assert lab.explore(large, lambda _: None).looked == -(-(90 - used) // 2)
        lab.close()

    def test_schedules_are_divided_as_well(self) -> None:
        def client(home: Path) -> None:
            for number in (1, 2, 3):
                (home / "note").write_text(str(number))

        lab = Race(Settings(bounds=Bounds(schedules=20)))
        lab.divide(2)
        used = lab.explore(None, [client, client], lambda _: None, preemptions=0).tried
        assert used < 10
        assert lab.explore(None, [client, client], lambda _: None).tried == 20 - used
        lab.close()

    def test_a_clause_gets_a_part_of_what_a_profile_allows(self) -> None:
        lab = Crash(Settings(bounds=Bounds(states=60, clause_parts=3)))
        assert lab.explore(large, lambda _: None).tried == 60
        lab.divide(1)
        assert lab.explore(large, lambda _: None).tried == 20
        lab.close()

    def test_a_second_division_starts_from_all_of_them(self, crash: Crash) -> None:
        for _ in range(2):
            crash.divide(2)
            assert crash.explore(large, lambda _: None).tried == 30
