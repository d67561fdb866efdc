"""Budgets: what is counted, and where a bound cuts an exploration off."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk
from pytest_wfstate.faults.bounds import PROFILES, Bounds
from pytest_wfstate.faults.crash import budget
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Create, Fsync, Trace, Tree, Write
from pytest_wfstate.labs.lab import Settings
from tests.unit.faults.conftest import Lab, Tried, accept
from tests.unit.faults.disk.notes import read, save, save_without_file_fsync, write


def three_notes(home: Path) -> None:
    for number in (1, 2, 3):
        write(home / f"{number}.tmp", bytes([number]) * 1500)
        os.replace(home / f"{number}.tmp", home / f"{number}")


@pytest.fixture(scope="module")
def everything() -> Tried:
    """All disks that crashes of `three_notes` can leave, in order."""
    tried = Tried()
    crash = Crash(Settings(bounds=PROFILES["thorough"]))
    crash.explore(three_notes, tried)
    crash.close()
    return tried


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the bounds see, to be set."""
    time = [0.0]
    monkeypatch.setattr(budget, "now", lambda: time[0])
    return time


class TestCounts:
    def test_of_a_whole_run(self, crash: Crash) -> None:
        tried = Tried()
        explored = crash.explore(lambda home: write(home / "note", b"1"), tried)
        # Nothing; the file without its byte, or with it, or with a zero in its place.
        disks: list[dict[str, bytes | None]] = [{}, {"note": b""}, {"note": b"1"}, {"note": b"\0"}]
        assert sorted(map(str, (files for files, _ in tried[1:]))) == sorted(map(str, disks))
        assert (explored.tried, explored.distinct, explored.skipped) == (4, 4, 0)
        # Before anything 1; after the create 2; after the write 2 for the name, 2 for the size, 2 for the page.
        assert explored.possible == 1 + 2 + 8
        assert 0 < explored.seconds < 60
        assert explored.verdict == "CLEAN"
        assert explored.replay == ""
        assert str(explored).startswith("posix: 4 distinct disks checked of 11 possible combinations, in ")

    def test_of_more_combinations_than_python_prints(self, lab: Lab) -> None:
        def workload(home: Path) -> None:
            for number in range(10):
                write(home / str(number), b"x" * 2**20)

        explored = lab(bounds=Bounds(1, 600)).explore(workload, accept)
        assert explored.possible > 10**1000
        assert re.search(r"of about 10\^\d{3,4} possible combinations, about 10\^\d{3,4} skipped", str(explored))

    def test_of_a_violation(self, lab: Lab) -> None:
        results: list[CrashResult] = []
        crash = lab(done=results.append)

        def check(disk: Disk) -> None:
            assert read(disk.home) != ""

        with pytest.raises(CrashBug) as caught:
            crash.explore(lambda home: save_without_file_fsync(home, "text"), check)
        (explored,) = results
        assert explored.verdict == "VIOLATED"
        assert explored.replay == caught.value.replay_id
        assert 0 < explored.tried <= explored.distinct

    @pytest.mark.parametrize("wrong", ["workload", "check"])
    def test_a_run_that_went_wrong_is_not_clean(self, lab: Lab, wrong: str) -> None:
        results: list[CrashResult] = []
        crash = lab(done=results.append)

        def workload(home: Path) -> None:
            save(home, "text")
            assert wrong != "workload"

        def check(_: Disk) -> None:
            assert wrong != "check"

        with pytest.raises(AssertionError):
            crash.explore(workload, check)
        assert [explored.verdict for explored in results] == ["NOT_MEASURED"]


class TestBounds:
    @pytest.mark.parametrize("states", [1, 7, 50, 200])
    def test_a_bound_cuts_off_the_tail(self, lab: Lab, everything: Tried, states: int) -> None:
        tried = Tried()
        explored = lab(bounds=Bounds(states, 600)).explore(three_notes, tried)
        assert explored.tried == states < len(everything)
        assert explored.skipped > 0
        assert list(tried) == everything[: 1 + states]
        assert " skipped" in str(explored)

    def test_prefixes_are_checked_first(self, everything: Tried) -> None:
        prefixes = [{}, {"1.tmp": b""}, {"1.tmp": b"\1" * 1500}, {"1": b"\1" * 1500}]
        assert [files for files, _ in everything[1:5]] == prefixes

    def test_time_is_a_bound(self, lab: Lab, clock: list[float]) -> None:
        def check(_: Disk) -> None:
            clock[0] += 1

        explored = lab(bounds=Bounds(10**9, 20)).explore(three_notes, check)
        assert explored.tried == 21
        assert explored.skipped > 0

    def test_time_is_a_bound_where_no_disk_is_new(self) -> None:
        unsynced = Write(1, 0, b"new" * PAGE)
        trace = Trace(Tree(), [Create(HOME, "a", 1, "file"), unsynced, *[Fsync(HOME, failed=True)] * 30])
        counters = Counters(time_left=lambda: False)
        states = list(distinct_states(CrashedRun(trace, "posix", ()), counters))
        assert 0 < len(states) < counters.looked == 50
        assert counters.skipped > 0

    @pytest.mark.parametrize(("losses", "skipped"), [(5, True), (math.inf, False)])
    def test_of_the_ways_to_lose_at_one_point(self, lab: Lab, losses: float, skipped: bool) -> None:
        crash = lab(bounds=Bounds(math.inf, math.inf, losses))
        explored = crash.explore(lambda home: [(home / name).touch() for name in "abcd"], accept)
        assert bool(explored.skipped) == skipped

    def test_there_is_none_in_the_thorough_profile(self) -> None:
        assert PROFILES["thorough"] == Bounds(math.inf, math.inf, math.inf, samples=16)

    def test_one_disk_is_checked_at_the_least(self, lab: Lab) -> None:
        assert lab(bounds=Bounds(0, -1)).explore(three_notes, accept).tried == 1

    def test_the_time_of_setup_and_workload_does_not_count(self, lab: Lab, clock: list[float]) -> None:
        def slow(home: Path) -> None:
            save(home, "text")
            clock[0] += 1000

        explored = lab(bounds=Bounds(10**9, 1)).explore(slow, accept, setup=slow)
        assert explored.skipped == 0
        assert explored.seconds == 2000

    @pytest.mark.usefixtures("frozen_clock")
    def test_a_frozen_clock_does_not_stop_it(self, crash: Crash) -> None:
        explored = crash.explore(lambda home: save(home, "text"), accept)
        assert explored.seconds > 0

    def test_progress_is_reported_every_64_disks(self, lab: Lab) -> None:
        reported: list[int] = []
        explored = lab(progress=lambda result: reported.append(result.tried)).explore(three_notes, accept)
        assert reported == list(range(64, explored.tried + 1, 64))
