"""Journals that tests begin with: files with several changes, and what each part of them holds."""

from __future__ import annotations

import functools
import tempfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.stores.file.kinds import JOURNALS, Kind

each_journal = pytest.mark.parametrize("kind", JOURNALS, ids=str)


class Grown(NamedTuple):
    """A journal after several changes: its bytes, and after each change its length and what was loaded then."""

    data: bytes
    ends: list[int]
    states: list[Any]

    def at(self, length: int) -> Any:
        """Return what the first `length` bytes hold: every change whose line is whole."""
        whole = [state for end, state in zip(self.ends, self.states, strict=True) if end <= length]
        return whole[-1]


@functools.cache
def grown(kind: Kind, changes: int = 5) -> Grown:
    with tempfile.TemporaryDirectory() as home:
        store, path = kind.open(Path(home)), Path(home, kind.file)
        ends, states = [], []
        for n in range(changes):
            kind.change(store, "a", n)
            ends.append(path.stat().st_size)
            states.append(kind.load(store, "a"))
        return Grown(path.read_bytes(), ends, states)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def line(body: bytes) -> bytes:
    return b"%08x %08x %s\n" % (zlib.crc32(body), len(body), body)
