"""Corruption: a record that cannot be read any more, in a store that holds others."""

from __future__ import annotations

from pathlib import Path

import pytest


def files(home: Path) -> dict[Path, bytes]:
    """Read all files of a home."""
    return {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def own_file(empty: dict[Path, bytes], others: dict[Path, bytes], now: dict[Path, bytes]) -> Path:
    """Find the one file that only the last save changed.

    Skips the test if there is none, or more than one.
    """
    shared = {path for path in others if others[path] != empty.get(path)}
    own = [path for path in now if now[path] != others.get(path) and path not in shared]
    if len(own) != 1:
        pytest.skip(
            "cannot tell which file holds a record. Write corrupt(self, home, id), which damages that of one id"
        )
    return own[0]


def cut(path: Path) -> None:
    """Cut a file in the middle."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
