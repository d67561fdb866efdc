"""Large files: their disks are derived one by one, and a bound on bytes cuts them off, not the clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_wfstate import Crash, CrashBug, Disk
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.faults.disk.losses import CrashPoint
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.order import in_order
from pytest_wfstate.faults.trace.ops import HOME, SECTOR, Create, Trace, Tree, Write
from tests.unit.faults.conftest import Lab, accept

MIB = 2**20
SIZE = MIB // 4
OLD, NEW = bytes(SIZE), b"new!" * (SIZE // 4)


def replaced(home: Path) -> None:
    (home / "a.tmp").write_bytes(NEW)
    os.replace(home / "a.tmp", home / "a")


def old_or_new(disk: Disk) -> None:
    is_whole = (disk.home / "a").read_bytes() in (OLD, NEW)  # pytest would take seconds to show the bytes
    assert is_whole


def setup(home: Path) -> None:
    (home / "a").write_bytes(OLD)


def large_write(size: int) -> tuple[Trace, list[CrashPoint]]:
    trace = Trace(Tree(), [Create(HOME, "a", 1), Write(1, 0, os.urandom(size))])
    return trace, list(crash_points(trace, "posix"))


def test_a_bound_on_bytes_leaves_more_than_one_disk(lab: Lab) -> None:
    explored = lab(bounds=Bounds(volume=64 * SIZE)).explore(replaced, accept, setup=setup)
    assert explored.tried > 10
    assert explored.skipped > 0
    assert explored.derived <= 64 * SIZE + 2 * SIZE


def test_a_torn_large_file_is_found_and_replayed(lab: Lab) -> None:
    with pytest.raises(CrashBug, match="would make this state impossible") as caught:
        lab(bounds=Bounds(volume=64 * SIZE)).explore(replaced, old_or_new, setup=setup)
    assert len(caught.value.replay_id) < 100


def test_the_first_and_the_last_sector_are_lost_and_kept_alone_among_the_first_disks() -> None:
    trace, points = large_write(MIB)
    candidates = in_order(trace, points)
    lost = [len(dict(loss[1])) for point, loss in (next(candidates) for _ in range(20)) if len(loss) > 1]
    assert {1, MIB // SECTOR - 1} <= set(lost)


def test_no_axis_of_a_large_file_is_built_for_the_disk_that_lost_nothing() -> None:
    trace, points = large_write(4 * MIB)
    point, loss = next(in_order(trace, points[-1:]))
    assert loss == point.kept
    assert point.tree(loss).data[1] == trace.items[1].data  # type: ignore[union-attr]
    assert not point.parts[1].axes._built  # type: ignore[attr-defined]


def test_the_loss_of_a_large_write_has_a_short_id(crash: Crash) -> None:
    def check(disk: Disk) -> None:
        is_there = any((disk.home / "a").read_bytes())
        assert is_there

    with pytest.raises(CrashBug) as caught:
        crash.explore(replaced, check, setup=lambda home: (home / "a").write_bytes(b"old"))
    assert len(caught.value.replay_id) < 100
