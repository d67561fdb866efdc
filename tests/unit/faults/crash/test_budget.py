"""Budgets: what is counted, and where a bound cuts an exploration off."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, CrashResult, Disk, NotMeasured
from pytest_wfstate.faults.bounds import PROFILES, Bounds
from pytest_wfstate.faults.crash import budget
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states
from pytest_wfstate.faults.trace.ops import HOME, PAGE, Create, Fsync, Trace, Tree, Write
from pytest_wfstate.labs.lab import Settings
from tests.unit.faults.conftest import Lab, Tried, accept
from tests.unit.faults.disk import protocols
from tests.unit.faults.disk.notes import read, save, save_without_file_fsync, write


def three_notes(home: Path) -> None:
    for number in (1, 2, 3):
        write(home / f"{number}.tmp", bytes([number]) * 900)
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
    """The time that the safety net sees, to be set."""
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

        explored = lab(bounds=Bounds(states=1)).explore(workload, accept)
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
        explored = lab(bounds=Bounds(states=states)).explore(three_notes, tried)
        assert explored.tried == states < len(everything)
        assert explored.skipped > 0
        assert explored.verdict == "CLEAN"
        assert list(tried) == everything[: 1 + states]
        assert " skipped" in str(explored)

    def test_prefixes_are_checked_first(self, everything: Tried) -> None:
        prefixes = [{}, {"1.tmp": b""}, {"1.tmp": b"\1" * 900}, {"1": b"\1" * 900}]
        assert [files for files, _ in everything[1:5]] == prefixes

    @pytest.mark.parametrize("depth", [1, 2])
    def test_a_slow_machine_checks_the_same_disks(self, lab: Lab, clock: list[float], depth: int) -> None:
        def explored(slowness: float) -> tuple[Tried, CrashResult]:
            tried = Tried()

            def check(disk: Disk) -> None:
                clock[0] += slowness
                tried(disk)
                (disk.home / "recovered").touch()

            return tried, lab(bounds=PROFILES["quick"]).explore(three_notes, check, depth=depth)

        (fast, of_fast), (slow, of_slow) = explored(0.0), explored(0.1)
        assert slow == fast
        assert of_slow.verdict == of_fast.verdict == "CLEAN"
        assert of_slow.seconds > 20

    def test_a_slow_machine_finds_what_sqlite_does_not_sync(self, lab: Lab, clock: list[float]) -> None:
        crash = lab(bounds=PROFILES["quick"])

        def workload(home: Path) -> None:
            with protocols.sqlite("WAL", "NORMAL")(home) as save_number:
                for number in range(1, 11):
                    save_number(number)
                    crash.ack(number)

        def check(disk: Disk) -> None:
            clock[0] += 0.5
            assert protocols.read(disk.home) >= len(disk.acked)

        with pytest.raises(CrashBug, match="PRAGMA synchronous=FULL"):
            crash.explore(workload, check)

    @pytest.mark.parametrize("looks", [1, 40, 200])
    def test_combinations_that_leave_no_new_disk_are_bounded(self, lab: Lab, looks: int) -> None:
        explored = lab(bounds=Bounds(looks=looks)).explore(three_notes, accept)
        assert explored.looked == looks
        assert 0 < explored.tried <= looks
        assert explored.skipped > 0

    def test_combinations_are_bounded_where_no_disk_is_new(self) -> None:
        unsynced = Write(1, 0, b"new" * PAGE)
        trace = Trace(Tree(), [Create(HOME, "a", 1, "file"), unsynced, *[Fsync(HOME, failed=True)] * 30])
        counters = Counters(looks=50)
        states = list(distinct_states(CrashedRun(trace, "posix", ()), counters))
        assert 0 < len(states) < counters.looked == 50
        assert counters.skipped > 0

    @pytest.mark.parametrize("bounds", [Bounds(states=20), Bounds(looks=40)], ids=["states", "looks"])
    def test_half_of_each_bound_is_for_crashes_of_the_recovery(self, lab: Lab, bounds: Bounds) -> None:
        half = lab(bounds=bounds.share(2)).explore(three_notes, accept)
        recovered: list[bool] = []

        def check(disk: Disk) -> None:
            recovered.append((disk.home / "recovered").exists())
            (disk.home / "recovered").touch()

        explored = lab(bounds=bounds).explore(three_notes, check, depth=2)
        assert recovered.index(True) > half.tried
        assert half.tried < explored.tried
        assert explored.tried == bounds.states or explored.looked == bounds.looks

    @pytest.mark.parametrize(("losses", "skipped"), [(5, True), (math.inf, False)])
    def test_of_the_ways_to_lose_at_one_point(self, lab: Lab, losses: float, skipped: bool) -> None:
        crash = lab(bounds=Bounds(losses=losses))
        explored = crash.explore(lambda home: [(home / name).touch() for name in "abcd"], accept)
        assert bool(explored.skipped) == skipped

    def test_the_thorough_profile_is_large_and_finite(self) -> None:
        bounds = PROFILES["thorough"]
        assert bounds.states == bounds.schedules == 1_000_000
        assert all(math.isfinite(getattr(bounds, field.name)) for field in dataclasses.fields(bounds))

    def test_one_disk_is_checked_at_the_least(self, lab: Lab) -> None:
        assert lab(bounds=Bounds(states=0, looks=0, seconds=-1)).explore(three_notes, accept).tried == 1

    def test_progress_is_reported_every_64_disks(self, lab: Lab) -> None:
        reported: list[int] = []
        explored = lab(progress=lambda result: reported.append(result.tried)).explore(three_notes, accept)
        assert reported == list(range(64, explored.tried + 1, 64))


class TestCoverage:
    """Call sites are the lines of code whose operations can be crashed."""

    @staticmethod
    def two_lines(home: Path) -> None:
        for number in range(9):
            (home / f"a{number}").touch()
        (home / "b").touch()

    def test_a_whole_exploration_crashes_every_call_site(self, lab: Lab) -> None:
        explored = lab(bounds=PROFILES["default"]).explore(self.two_lines, accept)
        assert (explored.crashed, explored.sites) == (2, 2)
        assert explored.bounded_to() == ""

    def test_a_bound_says_how_little_it_left(self, lab: Lab) -> None:
        explored = lab(bounds=Bounds(states=2)).explore(self.two_lines, accept)
        assert explored.crashed < explored.sites == 2
        combinations = f"{explored.looked} of {explored.possible:,} combinations"
        assert explored.bounded_to() == f"{combinations}, {explored.crashed} of 2 call sites crashed"

    def test_code_without_lines_has_no_call_sites(self) -> None:
        assert CrashResult("posix", possible=9, looked=3).covered() == "3 of 9 combinations"

    def test_lines_of_the_recovery_are_call_sites_as_well(self, crash: Crash) -> None:
        explored = crash.explore(self.two_lines, lambda disk: (disk.home / "recovered").touch(), depth=2)
        assert (explored.crashed, explored.sites) == (3, 3)

    @pytest.mark.parametrize(("states", "expected"), [(5, "1 of 2 call sites failed"), (5_000, "")])
    def test_an_operation_that_fails_is_at_a_call_site(self, lab: Lab, states: int, expected: str) -> None:
        explored = lab(bounds=Bounds(states=states)).errors(self.two_lines, accept)
        assert explored.bounded_to().endswith(expected)
        assert bool(explored.bounded_to()) == bool(expected)


class TestSafetyNet:
    @staticmethod
    def slow(clock: list[float]) -> Callable[[Disk], None]:
        def check(_: Disk) -> None:
            clock[0] += 1

        return check

    def test_an_exploration_that_it_stops_is_incomplete(self, lab: Lab, clock: list[float]) -> None:
        results: list[CrashResult] = []
        with pytest.raises(NotMeasured) as caught:
            lab(bounds=Bounds(seconds=20), done=results.append).explore(three_notes, self.slow(clock))
        (explored,) = results
        assert explored.verdict == "INCOMPLETE"
        assert explored.tried == 21
        left = f"{explored.skipped:,} of {explored.possible:,} combinations"
        assert re.match(
            r"INCOMPLETE, so neither a pass nor a violation:\n"
            rf"- the safety net of 20 s stopped it before the bounds of the profile did\. Not tried: {left}\. ",
            str(caught.value),
        )

    def test_a_test_can_allow_it(self, lab: Lab, clock: list[float]) -> None:
        with pytest.raises(pytest.skip.Exception, match=r"^INCOMPLETE: the safety net of 20 s"):
            lab(bounds=Bounds(seconds=20)).explore(three_notes, self.slow(clock), unmeasured="skip")

    def test_an_exploration_that_ends_in_time_is_clean(self, lab: Lab, clock: list[float]) -> None:
        explored = lab(bounds=Bounds(states=21, seconds=20)).explore(three_notes, self.slow(clock))
        assert (explored.verdict, explored.tried) == ("CLEAN", 21)

    def test_it_does_not_hide_a_violation(self, lab: Lab, clock: list[float]) -> None:
        def check(disk: Disk) -> None:
            clock[0] += 1
            assert (disk.home / "3").exists() or not (disk.home / "1").exists()

        with pytest.raises(CrashBug):
            lab(bounds=Bounds(seconds=6)).explore(three_notes, check)
        assert clock[0] > 6  # shrinking is not stopped

    def test_it_stops_io_errors(self, lab: Lab, clock: list[float]) -> None:
        with pytest.raises(NotMeasured, match=r"^INCOMPLETE"):
            lab(bounds=Bounds(seconds=5)).errors(three_notes, self.slow(clock))

    def test_the_time_of_setup_and_workload_does_not_count(self, lab: Lab, clock: list[float]) -> None:
        def slow(home: Path) -> None:
            save(home, "text")
            clock[0] += 1000

        explored = lab(bounds=Bounds(seconds=1)).explore(slow, accept, setup=slow)
        assert explored.skipped == 0
        assert explored.seconds == 2000

    @pytest.mark.usefixtures("frozen_clock")
    def test_a_frozen_clock_does_not_stop_it(self, crash: Crash) -> None:
        explored = crash.explore(lambda home: save(home, "text"), accept)
        assert explored.seconds > 0
