"""Strands have the same names in each run that does the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.faults.trace.ops import Trace


def recorded(home: Path, *jobs: str, workers: int = 2) -> Trace:
    with Recorder(home) as recorder:
        (home / "main").touch()
        with ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit((home / job).touch) for job in jobs]:
                future.result()
        thread = threading.Thread(target=(home / "thread").touch)
        thread.start()
        thread.join()
    return recorder.trace()


def by_strand(trace: Trace) -> dict[str, str]:
    """The file that each strand made."""
    return {getattr(item, "name", ""): strand for item, strand in zip(trace.items, trace.strands(), strict=True)}


def test_a_job_has_its_own_whichever_thread_does_it(home: Path) -> None:
    assert by_strand(recorded(home, "x", "y", "z")) == {"main": "0", "x": "1", "y": "2", "z": "3", "thread": "4"}


def test_one_strand_needs_no_names(home: Path) -> None:
    with Recorder(home) as recorder:
        (home / "main").touch()
    assert recorder.trace().turns == []


def test_older_threads_are_named_in_the_order_in_which_they_show_up(home: Path) -> None:
    go = {name: threading.Event() for name in "xy"}

    def touch(name: str) -> None:
        go[name].wait()
        (home / name).touch()

    threads = {name: threading.Thread(target=touch, args=(name,)) for name in "xy"}
    for thread in threads.values():
        thread.start()
    with Recorder(home) as recorder:
        for name in "yx":
            go[name].set()
            threads[name].join()
    assert by_strand(recorder.trace()) == {"y": "a", "x": "b"}


def test_what_is_outside_home_counts_as_a_turn(home: Path) -> None:
    """A replay has to know when to let a thread go on, and then nobody knows yet what concerns home."""
    with Recorder(home) as recorder:
        (home.parent / "outside").touch()
        thread = threading.Thread(target=(home / "a").touch)
        thread.start()
        thread.join()
    trace = recorder.trace()
    assert (trace.turns, trace.strands()) == (["0", "1"], ["1"])
    assert trace.turns_until(1) == ["0", "1"]
    assert trace.turns_until(0) == []
