"""What crashes do to a store that does not fsync, and to a save that replaces a damaged record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import CorruptRecord, Crash, CrashBug, Disk
from pytest_wfstate.stores.file import journal

from .kinds import KINDS, Kind

each = pytest.mark.parametrize("kind", KINDS, ids=str)
DAMAGED = "damaged"


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_LEAST_CHANGES", 2)


def shown(kind: Kind, home: Path) -> Any:
    """Return the items of record "a"."""
    try:
        record = kind.load(kind.open(home / "store"), "a")
    except CorruptRecord:
        return DAMAGED
    return None if record is None else kind.items(record)


def calls(kind: Kind, home: Path) -> list[Callable[[], Any]]:
    store = kind.open(home / "store")
    changes = [lambda n=n: kind.change(store, "a", n) for n in range(1, 6)]
    return [*changes, lambda: kind.delete and kind.delete(store, "a")]


def states(kind: Kind, home: Path) -> list[Any]:
    """Return what the store shows before the first call and after each."""
    return [None, *((call(), shown(kind, home))[1] for call in calls(kind, home))]


@pytest.fixture
def without_fsync(kind: Kind, tmp_path: Path, crash: Crash) -> Callable[..., Any]:
    """Crash the calls in a store that does not fsync. `expected` returns the states allowed after some calls."""
    known = states(kind, tmp_path)

    def workload(home: Path) -> None:
        for number, call in enumerate(calls(kind, home), start=1):
            call()
            crash.ack(number)

    def explore(model: Any, expected: Callable[[list[Any], int], list[Any]]) -> None:
        def check(disk: Disk) -> None:
            assert shown(kind, disk.home) in expected(known, len(disk.acked))
            store = kind.open(disk.home / "store")
            kind.change(store, "z", 1)
            assert kind.items(kind.load(store, "z")) == [1]

        crash.explore(workload, check, model=model)

    return explore


@each
def test_without_fsync_a_killed_process_loses_nothing(without_fsync: Callable[..., Any]) -> None:
    without_fsync("kill", lambda known, done: known[done : done + 2])


@each
def test_without_fsync_a_power_cut_mixes_nothing_up(without_fsync: Callable[..., Any]) -> None:
    without_fsync("posix", lambda known, _: [*known, DAMAGED])


@each
def test_without_fsync_a_power_cut_loses_acknowledged_calls(without_fsync: Callable[..., Any]) -> None:
    with pytest.raises(CrashBug):
        without_fsync("posix", lambda known, done: known[done : done + 2])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.save], ids=str)
def test_a_save_over_a_damaged_record_is_all_or_nothing(crash: Crash, kind: Kind) -> None:
    assert kind.save is not None
    save = kind.save

    def setup(home: Path) -> None:
        kind.change(kind.open(home / "store"), "a", 1)
        (home / "store" / kind.file).write_bytes(b"damage")

    def workload(home: Path) -> None:
        save(kind.open(home / "store", "power"), "a", 2)
        crash.ack("saved")

    def check(disk: Disk) -> None:
        assert shown(kind, disk.home) in ([[2]] if disk.acked else [[2], DAMAGED])
        save(kind.open(disk.home / "store"), "a", 3)
        assert shown(kind, disk.home) == [3]

    crash.explore(workload, check, setup=setup)
    crash.errors(workload, check, setup=setup)
