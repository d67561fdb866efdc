"""How fast schedules of two clients are explored, and how many are pruned.

Two workers claim the same run. `race.explore` runs them in every schedule of their file operations, within two
preemptions. Its speed is compared with two processes started for each schedule, as one would write it by hand, and the
number of schedules with that of a search without pruning.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_wfstate import FilePausedStore, samples
from pytest_wfstate.faults.disk.home import Home, memory_home
from pytest_wfstate.faults.race.processes import ClientProcesses
from pytest_wfstate.faults.race.search import ScheduleSearch

RATE = 300  # schedules a second, as orientation
FEW = 200  # schedules of the search without pruning, to measure its rate
PAIRS = 20  # of processes


class Renaming:
    """A claim as it is often written: check for the file, remove an old marker, rename the file to the marker."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def save(self, _: Any) -> None:
        """Pause a run."""
        (self._home / "run-1.json").write_text("{}")

    def claim(self, run_id: str) -> bool:
        """Take a run."""
        paused, taken = self._home / f"{run_id}.json", self._home / f"{run_id}.inflight"
        if not paused.exists():
            return False
        taken.unlink(missing_ok=True)
        try:
            paused.rename(taken)
        except FileNotFoundError:
            return False
        return True


def search(home: Home, open_store: Callable[[Path], Any], *, prune: bool, most: int | None = None) -> tuple[int, float]:
    """Run all schedules, or at most `most`; return their number, and how many ran per second."""

    def client(home: Path) -> bool:
        return bool(open_store(home).claim("run-1"))

    home.build({}, {})
    open_store(home.path).save(samples.paused("run-1"))
    with contextlib.closing(ClientProcesses(home, [client, client])) as clients:
        clients.run(())  # the processes start
        schedules = ScheduleSearch(clients, 2, prune)
        began = time.perf_counter()
        for _ in schedules:
            if most is not None and schedules.runs >= most:
                break
        return schedules.runs, schedules.runs / (time.perf_counter() - began)


def processes(home: Home, open_store: Callable[[Path], Any]) -> float:
    """Start two processes again and again; return how many pairs ran per second."""
    fork = multiprocessing.get_context("fork")
    began = time.perf_counter()
    for _ in range(PAIRS):
        pair = [fork.Process(target=_claim, args=(open_store, home.path)) for _ in range(2)]
        for process in pair:
            process.start()
        for process in pair:
            process.join()
    return PAIRS / (time.perf_counter() - began)


def _claim(open_store: Callable[[Path], Any], home: Path) -> None:
    open_store(home).claim("run-1")
    os._exit(0)


def main() -> int:
    """Measure both stores; fail if the search is not faster than processes started by hand."""
    slow = False
    for name, open_store in {"check, then rename": Renaming, "FilePausedStore": FilePausedStore}.items():
        with memory_home() as home:
            pruned, rate = search(home, open_store, prune=True)
            whole, _ = search(home, open_store, prune=False)
            _, steady = search(home, open_store, prune=False, most=FEW)
            by_hand = processes(home, open_store)
        slow |= steady < by_hand
        print(
            f"{name}: {pruned:,} schedules instead of {whole:,} within 2 preemptions, {rate:,.0f}/s; of all, "
            f"{steady:,.0f}/s (orientation: {RATE}), {steady / by_hand:.1f}x two processes started for each"
        )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
