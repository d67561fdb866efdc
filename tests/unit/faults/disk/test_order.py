"""The order of disks: one of each kind first, then the rest, spread over the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import Bounds, Model
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.order import call_sites, in_order
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.trace.ops import Trace
from tests.unit.faults.conftest import Lab
from tests.unit.faults.disk.notes import save

MANY = 150


def traced(home: Path, times: int) -> tuple[Trace, list[CrashPoint]]:
    with Recorder(home) as recorder:
        for number in range(times):
            save(home, f"{number}", name=f"{number}.txt")
    trace = recorder.trace()
    return trace, list(crash_points(trace, "posix"))


def prefixes(trace: Trace, points: Sequence[CrashPoint]) -> list[int]:
    """Return the points in the order in which the disks that lost nothing are tried."""
    return [point.index for point, loss in in_order(trace, points) if loss == point.kept]


def test_every_loss_comes_once(home: Path) -> None:
    trace, points = traced(home, 3)
    ordered = [(point.index, loss) for point, loss in in_order(trace, points)]
    assert len(set(ordered)) == len(ordered)
    assert set(ordered) >= {(point.index, loss) for point in points for _, loss in point.losses()}


def test_a_loop_has_as_many_representatives_as_its_first_round(home: Path) -> None:
    trace, points = traced(home, 16)
    once = len(set(call_sites(trace)))
    assert once == len(trace.items) // 16
    assert prefixes(trace, points)[: once + 1] == list(range(once + 1))


def test_what_is_not_a_representative_is_spread_over_the_run(home: Path) -> None:
    trace, points = traced(home, 16)
    rest = prefixes(trace, points)[len(set(call_sites(trace))) + 1 :]
    eighth = rest[: len(rest) // 8]
    assert max(eighth) > len(trace.items) * 3 // 4
    assert min(eighth) < len(trace.items) // 4


def test_one_line_that_writes_several_files_is_several_call_sites(home: Path) -> None:
    with Recorder(home) as recorder:
        for name in ("a.log", "b.log", "a.json"):
            (home / name).touch()
    assert len(set(call_sites(recorder.trace()))) == 2


@pytest.mark.parametrize("model", ["kill", "ext4", "posix"])
def test_a_bug_at_the_end_of_a_long_run_is_found_within_a_small_bound(lab: Lab, model: Model) -> None:
    crash = lab(bounds=Bounds(50, 600))

    def workload(home: Path) -> None:
        for number in range(MANY):
            save(home, f"{number}", name="note")
        (home / "note").write_text("in place")
        crash.ack("in place")

    def check(disk: Disk) -> None:
        text = (disk.home / "note").read_text() if (disk.home / "note").exists() else "nothing yet"
        assert text, "the note is empty"

    with pytest.raises(CrashBug, match="the note is empty"):
        crash.explore(workload, check, model=model)


def three_notes(home: Path) -> None:
    for name in "abc":
        save(home, name, name=name)


def test_two_orders_of_one_run_are_equal(crash: Crash) -> None:
    seen: list[list[tuple[str, ...]]] = []

    def check(disk: Disk) -> None:
        seen[-1].append(tuple(sorted(os.listdir(disk.home))))

    for _ in range(2):
        seen.append([])
        crash.explore(three_notes, check)
    assert seen[0] == seen[1]
