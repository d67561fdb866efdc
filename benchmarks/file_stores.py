"""Measure the file stores, each as a ratio to a baseline in the same run.

    python benchmarks/file_stores.py [--home DIR]

DIR should be on a real disk: where fsync is free, the last table is meaningless. The second table needs room for
200,000 small files. Exits 1 if a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_wfstate import (
    FileEffectStore,
    FilePausedStore,
    FileResumeStore,
    FileRunStore,
    FileSnapshotStore,
    as_sync,
    samples,
)

LIMIT, LIMIT_OF_CROWDS = 1.5, 2.0
CHANGES, PART, ROUNDS = 10_000, 1_000, 3
FEW, MANY, PICKED = 100, 100_000, 50
BLOCKS, SAVES = 30, 20


class Row(NamedTuple):
    """One comparison, in microseconds per call."""

    what: str
    base: float
    ours: float
    limit: float = LIMIT

    @property
    def ratio(self) -> float:
        """Our time divided by the baseline's."""
        return self.ours / self.base

    def __str__(self) -> str:
        verdict = "ok" if self.ratio <= self.limit else f"above {self.limit}"
        return f"{self.what:<28} {self.base:>9.1f} {self.ours:>9.1f} {self.ratio:>7.2f}  {verdict}"


def timed(calls: Sequence[Callable[[], object]]) -> float:
    """Return the microseconds per call."""
    start = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - start) / len(calls) * 1e6


async def grow(change: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """Return the time of one of the first changes of a long run, and of one of the last."""
    parts = []
    for first in range(0, CHANGES, PART):
        start = time.perf_counter()
        for n in range(first, first + PART):
            await change(n)
        parts.append((time.perf_counter() - start) / PART * 1e6)
    return parts[0], parts[-1]


def growth(what: str, changes: Callable[[int], Callable[[int], Awaitable[object]]]) -> Row:
    """Compare the last changes of a long run with its first: the best of several rounds, since noise only adds."""
    rounds = [asyncio.run(grow(changes(n))) for n in range(ROUNDS)]
    return Row(what, *(min(column) for column in zip(*rounds, strict=True)))


def growths(home: Path) -> list[Row]:
    """Grow a long run in each journal, without fsync, which would hide the cost of the store itself."""
    effects = FileEffectStore(home / "effects", "process")
    runs = FileRunStore(home / "runs", "process")
    snapshots = FileSnapshotStore(home / "snapshots", "process")

    def marks(run: int) -> Callable[[int], Awaitable[object]]:
        return lambda n: effects.mark_step_complete(f"run-{run}", f"use-{n:05}", samples.effect(f"use-{n:05}"))

    def steps(run: int) -> Callable[[int], Awaitable[object]]:
        return lambda n: runs.upsert_step(f"run-{run}", samples.step(f"step-{n:05}"))

    def saves(run: int) -> Callable[[int], Awaitable[object]]:
        return lambda n: snapshots.save(samples.snapshot(f"run-{run}", 10_000 + n))

    return [growth("mark", marks), growth("upsert_step", steps), growth("save of a snapshot", saves)]


class Crowd:
    """Stores with many runs, and a few of them to query, spread evenly."""

    def __init__(self, home: Path, size: int) -> None:
        self._paused = FilePausedStore(home / f"paused-{size}", "process")
        self._home = home / f"snapshots-{size}"
        snapshots = as_sync(FileSnapshotStore(self._home, "process"))
        for n in range(size):
            self._paused.save(samples.paused(f"run-{n:06}"))
            snapshots.save(samples.snapshot(f"run-{n:06}"))
        self._picked = [f"run-{n:06}" for n in range(0, size, size // PICKED)]

    def claim(self) -> float:
        """Claim the few, then restore them."""
        took = timed([functools.partial(self._paused.claim, run) for run in self._picked])
        self._paused.recover_orphaned()
        return took

    def load(self) -> float:
        """Load the few."""
        return timed([functools.partial(self._paused.load, run) for run in self._picked])

    def latest(self) -> float:
        """Read the latest snapshots of the few, through a handle that has not read them before."""
        snapshots = as_sync(FileSnapshotStore(self._home, "process"))
        return timed([functools.partial(snapshots.latest, "wf", run) for run in self._picked])


def crowds(home: Path) -> list[Row]:
    """Compare calls among many runs with calls among few, alternating and without fsync."""
    few, many = Crowd(home, FEW), Crowd(home, MANY)

    def row(what: str, call: Callable[[Crowd], float]) -> Row:
        blocks = [(call(few), call(many)) for _ in range(BLOCKS)]
        base, ours = (statistics.median(column) for column in zip(*blocks, strict=True))
        return Row(what, base, ours, LIMIT_OF_CROWDS)

    return [row("claim", Crowd.claim), row("load", Crowd.load), row("latest", Crowd.latest)]


def bare(home: Path, data: bytes) -> None:
    """Replace a file durably, and nothing else."""
    tmp = home / "bare.json.tmp"
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(tmp, home / "bare.json")
    fd = os.open(home, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def against_bare(what: str, home: Path, save: Callable[[], object], file: Path) -> Row:
    """Compare a save with the bare sequence on the same bytes, alternating, so that noise hits both."""
    home.mkdir()
    save()
    data = file.read_bytes()
    blocks = [(timed([lambda: bare(home, data)] * SAVES), timed([save] * SAVES)) for _ in range(BLOCKS)]
    return Row(what, *(statistics.median(column) for column in zip(*blocks, strict=True)))


def saves(home: Path) -> list[Row]:
    """Compare saves with fsync."""
    resume, paused = FileResumeStore(home / "resume"), FilePausedStore(home / "paused")
    point, run = samples.resume_point("a"), samples.paused("a")
    return [
        against_bare(
            "save of FileResumeStore", home / "bare-resume", lambda: resume.save(point), home / "resume/a.json"
        ),
        against_bare("save of FilePausedStore", home / "bare-paused", lambda: paused.save(run), home / "paused/a.json"),
    ]


def table(title: str, base: str, ours: str, rows: list[Row]) -> None:
    """Print a comparison."""
    print(f"\n{title}\n{'microseconds per call':<28} {base:>9} {ours:>9} {'ratio':>7}")
    for row in rows:
        print(row)


def main() -> int:
    """Measure everything in a temporary folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path, default=Path.cwd(), help="a folder on a real disk (default: this one)")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().home) as folder:
        home = Path(folder)
        grown = growths(home)
        table(
            f"{CHANGES:,} changes of one run, without fsync, best of {ROUNDS}",
            f"first {PART:,}",
            f"last {PART:,}",
            grown,
        )
        crowded = crowds(home)
        table(
            f"one of several runs in the store, without fsync, medians of {BLOCKS} blocks of {PICKED}",
            f"{FEW:,} runs",
            f"{MANY:,}",
            crowded,
        )
        saved = saves(home)
        table(f"with fsync, medians of {BLOCKS} blocks of {SAVES}", "bare", "store", saved)
    return int(any(row.ratio > row.limit for row in [*grown, *crowded, *saved]))


if __name__ == "__main__":
    sys.exit(main())
