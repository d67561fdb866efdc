"""Workers at the same time: real processes on one database."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_wfstate
from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, as_sync, samples
from tests.unit.stores.sql.places import Place

ROOT = Path(pytest_wfstate.__file__).parents[1]


class Worker:
    """A process that does one job after another."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.stores.sql.workers"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def start(self, job: str, place: Place, *args: object) -> None:
        self.stdin.write(shlex.join([job, place.url, place.prefix, *map(str, args)]) + "\n")
        self.stdin.flush()

    def reported(self) -> list[int]:
        """Wait until the worker is done, and return every number it reported."""
        lines = map(str.strip, iter(self.stdout.readline, ""))
        return [int(word) for word in itertools.takewhile("done".__ne__, lines)]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    """Four processes that are ready to begin."""
    workers = [Worker() for _ in range(4)]
    try:
        assert [worker.reported() for worker in workers] == [[]] * 4
        yield workers
    finally:
        for worker in workers:
            worker.end()


@pytest.mark.parametrize("time", range(3))
def test_processes_that_begin_at_once_make_the_tables_once(place: Place, workers: list[Worker], time: int) -> None:
    for number, worker in enumerate(workers):
        worker.start("begin", place, number)

    numbers = [worker.reported() for worker in workers]

    with place.open(SqlResumeStore) as store:
        assert numbers == [[0], [1], [2], [3]], time
        assert all(store.load(f"run-{number}") for number in range(4))


def test_no_mark_of_several_processes_is_lost(place: Place, workers: list[Worker]) -> None:
    for n, worker in enumerate(workers):
        worker.start("mark", place, n * 40, 40)

    acknowledged = [n for worker in workers for n in worker.reported()]

    with as_sync(place.open(SqlEffectStore)) as store:
        task = store.load_checkpoint("a")
    marked = [int(effect.tool_use_id.removeprefix("use-")) for effect in task.side_effects_log]
    assert sorted(acknowledged) == sorted(marked) == list(range(160))
    assert (task.step_index, len(task.completed_tool_ids)) == (160, 160)


def test_processes_that_mark_the_same_effects_mark_each_once(place: Place, workers: list[Worker]) -> None:
    for worker in workers:
        worker.start("mark", place, 0, 40)

    acknowledged = [worker.reported() for worker in workers]

    with as_sync(place.open(SqlEffectStore)) as store:
        task = store.load_checkpoint("a")
    assert acknowledged == [list(range(40))] * 4
    assert [effect.tool_use_id for effect in task.side_effects_log] == [f"use-{n}" for n in range(40)]
    assert task.step_index == 40


def test_steps_of_several_processes_have_one_order(place: Place, workers: list[Worker]) -> None:
    for n, worker in enumerate(workers):
        worker.start("step", place, n * 40, 40)
    with as_sync(place.open(SqlRunStore)) as store:
        seen: list[list[str]] = [[]]
        while any(worker.process.poll() is None for worker in workers) and len(seen[-1]) < 160:
            seen.append([step.step_id for step in store.list_steps("a")])

    numbers = [worker.reported() for worker in workers]

    assert numbers == [list(range(n * 40, n * 40 + 40)) for n in range(4)]
    assert sorted(seen[-1]) == sorted(f"step-{n}" for n in range(160))
    assert all(seen[-1][: len(steps)] == steps for steps in seen)


def test_no_run_is_claimed_by_two_processes(place: Place, workers: list[Worker]) -> None:
    with place.open(SqlPausedStore) as store:
        for n in range(60):
            store.save(samples.paused(f"run-{n}"))
        for worker in workers:
            worker.start("claim", place, 60)

        claimed = Counter(n for worker in workers for n in worker.reported())

        assert claimed == Counter(range(60))
        assert store.recover_orphaned() == 0
        assert store.list() == []
