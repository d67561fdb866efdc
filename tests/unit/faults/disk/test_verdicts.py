"""The verdict table: eight ways to save, under four models of a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_wfstate import Crash, Disk
from pytest_wfstate.faults.bounds import Bounds, Model
from pytest_wfstate.labs.lab import Settings
from tests.unit.faults.disk.protocols import PROTOCOLS, Protocol, read

# What may go wrong: a note cannot be read, or an acknowledged one is missing.
CORRUPT, LOST = "corrupt", "lost acks"

TABLE: dict[str, dict[str, set[str]]] = {
    "overwrite in place": {"kill": {CORRUPT}, "ext4, xfs": {CORRUPT}, "posix": {CORRUPT, LOST}},
    "tmp + rename": {"kill": set(), "ext4, xfs": {CORRUPT, LOST}, "posix": {CORRUPT, LOST}},
    "+ fsync of the file": {"kill": set(), "ext4, xfs": {LOST}, "posix": {LOST}},
    "+ fsync of the folder": {"kill": set(), "ext4, xfs": set(), "posix": set()},
    "SQLite rollback journal, FULL": {"kill": set(), "ext4, xfs": {LOST}, "posix": {LOST}},
    "SQLite rollback journal, EXTRA": {"kill": set(), "ext4, xfs": set(), "posix": set()},
    "SQLite WAL, FULL": {"kill": set(), "ext4, xfs": set(), "posix": set()},
    "SQLite WAL, NORMAL": {"kill": set(), "ext4, xfs": {LOST}, "posix": {LOST}},
}

CASES = [
    pytest.param(protocol, model, wanted, id=f"{protocol}-{model}")
    for protocol, row in TABLE.items()
    for models, wanted in row.items()
    for model in models.split(", ")
]


@pytest.mark.parametrize(("protocol", "model", "wanted"), CASES)
def test_a_protocol_has_its_verdict(protocol: str, model: Model, wanted: set[str]) -> None:
    crash = Crash(Settings(bounds=Bounds(states=250, looks=2_500, samples=2)))
    assert verdict(crash, PROTOCOLS[protocol], model) == wanted


def verdict(crash: Crash, protocol: Protocol, model: Model) -> set[str]:
    """What can go wrong. The check goes on, so that each disk is judged once for both."""
    problems: set[str] = set()

    def workload(home: Path) -> None:
        with protocol(home) as save:
            for number in (1, 2, 3):
                save(number)
                crash.ack(number)

    def check(disk: Disk) -> None:
        try:
            number = read(disk.home)
        except Exception:
            problems.add(CORRUPT)
        else:
            problems.update({LOST} if number < len(disk.acked) else ())

    crash.explore(workload, check, model=model)
    return problems
