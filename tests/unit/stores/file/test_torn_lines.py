"""What a crash leaves of a line that is being appended: never anything that is taken for damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import Crash, Disk, FileSnapshotStore, as_sync, samples
from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.stores.file import journal, lines

SIZES = [10, 700, 5_000, 9_000]  # within a sector, within a page, and over several pages
LAST = 7


def append(home: Path, step: int, size: int) -> None:
    as_sync(FileSnapshotStore(home / "store")).save(samples.snapshot("a", step, values={"text": "x y@" * (size // 4)}))


@pytest.fixture
def torn(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every tail of a journal that was taken for a torn line."""
    tails: list[bytes] = []
    real = lines.is_torn

    def is_torn(tail: bytes, offset: int) -> bool:
        if real(tail, offset):
            tails.append(tail)
            return True
        return False

    monkeypatch.setattr(journal, "is_torn", is_torn)
    return tails


@pytest.mark.parametrize("model", ["kill", "ext4", "xfs", "posix"])
@pytest.mark.parametrize("size", SIZES)
def test_no_crash_leaves_a_line_that_is_taken_for_damage(
    crash: Crash, model: Model, size: int, torn: list[bytes]
) -> None:
    def setup(home: Path) -> None:
        append(home, 0, size)

    def workload(home: Path) -> None:
        for step in (1, 2):
            append(home, step, size)
            crash.ack(step)

    def check(disk: Disk) -> None:
        store: Any = as_sync(FileSnapshotStore(disk.home / "store"))
        steps = {meta.super_step for meta in store.list("wf", "a")} - {LAST}  # of a check that was crashed
        acked = {0, *disk.acked}
        assert steps in (acked, {*acked, len(acked)})
        append(disk.home, LAST, size)
        assert {meta.super_step for meta in store.list("wf", "a")} == {*steps, LAST}

    crash.explore(workload, check, setup=setup, model=model, depth=2)

    # A line within a page is all or nothing, but in posix.
    assert torn or (model != "posix" and size < 4096)
    assert all(b"\n" not in tail[:-1] for tail in torn)
