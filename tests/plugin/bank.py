"""Tests for pytest inside pytest that save notes, well or badly, and have the lab crash them."""

from __future__ import annotations

import re

import pytest

NOTES = """
import os

import pytest


def save(home, text):
    (home / "note.tmp").write_text(text)
    os.replace(home / "note.tmp", home / "note")


def fsync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save_well(home, text):
    (home / "note.tmp").write_text(text)
    fsync(home / "note.tmp")
    os.replace(home / "note.tmp", home / "note")
    fsync(home)


def read(home):
    return (home / "note").read_text() if (home / "note").exists() else None
"""


BROKEN = """
from notes import read, save


class Bank:
    def __init__(self):
        self.charged = []

    def charge(self, order, amount):
        self.charged.append(order)


def test_a_charge_is_remembered(crash):
    bank = crash.world(Bank())

    def workload(home):
        bank.charge("order-1", 12)
        save(home, "order-1")
        crash.ack("order-1")

    def check(disk):
        for order in disk.acked:
            assert read(disk.home) == order, "forgotten"

    crash.explore(workload, check)
"""


CARELESS = """
from notes import read, save


def test_it(crash):
    def workload(home):
        try:
            save(home, "text")
        except OSError:
            pass

    def check(disk):
        assert read(disk.home) == "text" or not (disk.home / "note.tmp").exists()

    crash.errors(workload, check, errors=("EIO",))
"""


SOUND = """
from notes import read, save_well


def test_it(crash):
    def workload(home):
        save_well(home, "text")
        crash.ack("text")

    def check(disk):
        assert read(disk.home) == "text" or not disk.acked

    explored = crash.explore(workload, check)
    print(explored.model, explored.tried)
"""


UNMEASURED = """
def test_it(crash):
    crash.explore(lambda home: None, lambda disk: None)
"""


def failure(result: pytest.RunResult) -> str:
    """Return the text of a failure, without pytest's margin."""
    lines = [re.sub(r"^E       ", "", line) for line in result.outlines if re.match(r"E(   |$)", line)]
    return "\n".join(line.rstrip() for line in lines)


def replay_id(result: pytest.RunResult) -> str:
    match = re.search(r"--wfstate-replay=(\S+)", result.stdout.str())
    assert match is not None
    return match[1]
