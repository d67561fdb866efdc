"""How fast crash states are explored, against what it is measured by in the same run.

A store saves a few notes, with all fsyncs. `crash.explore` derives disks that a power cut could leave, opens the store
on each and loads. It is compared with one process killed per point, as one would write it by hand, and with the
bare work that cannot be saved: writing the files of a state, opening the store, loading. The three take turns, so that
noise hits all alike. With `--profile` it shows what the time between an exploration and the bare work goes into.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import resource
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import notes
from notes import STORES, Store, work

from pytest_wfstate import Crash, Disk
from pytest_wfstate.faults.bounds import Bounds
from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.disk.states import State, distinct_states
from pytest_wfstate.faults.folders import Content
from pytest_wfstate.labs.lab import Settings

TURNS = 7
DISKS = 1_000  # explored a turn
KILLS = 3  # a turn, each at another point
FASTER = {"JSON file": 100}  # than a process killed per point, at the least; to open SQLite and load takes longer
SLOWER = 3  # than the bare work, at the most


class Rates(NamedTuple):
    """What was done in a second of CPU time: disks explored, processes killed, and disks written, opened and loaded."""

    explored: float
    killed: float
    bare: float

    @property
    def faster(self) -> float:
        """How many times as fast as one process killed per point."""
        return self.explored / self.killed

    @property
    def slower(self) -> float:
        """How many times as slow as the bare work."""
        return self.bare / self.explored


def loaded(open_store: Callable[[Path], Store], home: Path) -> int:
    """Open a store and load."""
    with contextlib.closing(open_store(home)) as store:
        return store.load()


def explore(crash: Crash, open_store: Callable[[Path], Store], seen: list[Content] | None = None) -> int:
    """Check every disk that a power cut can leave, and count them; `seen` takes what is on them."""

    def workload(home: Path) -> None:
        work(open_store(home), crash.ack)

    def check(disk: Disk) -> None:
        if seen is not None:
            seen.append(Home(disk.home).content())
        assert loaded(open_store, disk.home) >= len(disk.acked)

    return crash.explore(workload, check).tried


def kill(name: str, home: Path, points: int) -> int:
    """Let one process after the other die at a point of its own, and check what each leaves."""
    for point in range(1, points + 1):
        home.mkdir()
        done = subprocess.run([sys.executable, notes.__file__, name, str(home), str(point)], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        assert loaded(STORES[name], home) >= len(done.stdout.splitlines())
        _remove(home)
    return points


def write_open_load(home: Home, open_store: Callable[[Path], Store], states: list[Content]) -> int:
    """Do with each state what cannot be saved."""
    for content in states:
        home.build(content, {})
        loaded(open_store, home.path)
    return len(states)


def measure(name: str) -> Rates:
    """Let the three take turns; the median of each counts."""
    open_store = STORES[name]
    crash = Crash(Settings(bounds=Bounds(states=DISKS)))
    states: list[Content] = []
    explore(crash, open_store, states)
    with memory_home() as home, memory_home() as other:
        _remove(other.path)
        turns = [
            (
                _rate(lambda: explore(crash, open_store)),
                _rate(lambda: kill(name, other.path, KILLS)),
                _rate(lambda: write_open_load(home, open_store, states)),
            )
            for _ in range(TURNS)
        ]
    crash.close()
    return Rates(*(statistics.median(column) for column in zip(*turns, strict=True)))


def profile(name: str) -> dict[str, float]:
    """Return the share of an exploration's time that each part of it takes."""
    crash = Crash(Settings(bounds=Bounds(states=DISKS)))
    explore(crash, STORES[name])
    profiler = cProfile.Profile()
    profiler.runcall(explore, crash, STORES[name])
    crash.close()
    rows = pstats.Stats(profiler).stats  # type: ignore[attr-defined]

    def seconds(function: Any) -> float:
        code = function.__code__
        return float(rows[code.co_filename, code.co_firstlineno, code.co_name][3])

    parts = {
        "deriving distinct disks": seconds(distinct_states),
        "their content and times": seconds(State.image),
        "writing them": seconds(Home.build),
        "opening and loading": seconds(loaded),
    }
    whole = seconds(explore)
    shares = {part: spent / whole for part, spent in parts.items()}
    return {**shares, "the rest: recording, forks, a clean process": 1 - sum(shares.values())}


def _rate(task: Callable[[], int]) -> float:
    start = _cpu_time()
    count = task()
    return count / (_cpu_time() - start)


def _cpu_time() -> float:
    """Return the seconds that processors spent on this process and its children, however busy the machine is."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _remove(home: Path) -> None:
    for path in home.iterdir():
        path.unlink()
    home.rmdir()


def main() -> int:
    """Measure, print a table, and fail if a ratio is missed."""
    parser = argparse.ArgumentParser(description="How fast crash states are explored.")
    parser.add_argument("--profile", action="store_true", help="only show what an exploration's time goes into")
    if parser.parse_args().profile:
        for name in STORES:
            print(name, *(f"  {share:4.0%} {part}" for part, share in profile(name).items()), sep="\n")
        return 0
    columns = f"{'explored':>10} {'killed':>10} {'bare':>10} {'explored/killed':>16} {'bare/explored':>14}"
    print(f"{'a CPU second':12} {columns}")
    missed = False
    for name in STORES:
        rates = measure(name)
        print(
            f"{name:12} {rates.explored:10,.0f} {rates.killed:10,.1f} {rates.bare:10,.0f} "
            f"{rates.faster:15,.0f}x {rates.slower:13.1f}x"
        )
        missed |= rates.faster < FASTER.get(name, 0) or rates.slower > SLOWER
    least = ", ".join(f"{ratio}x ({name})" for name, ratio in FASTER.items())
    print(f"wanted: explored/killed at least {least}, bare/explored at most {SLOWER}x")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
