"""Workers at the same time: real processes, real threads, and a real kill."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_wfstate
from pytest_wfstate import FileEffectStore, FilePausedStore, samples
from tests.unit.stores.file.kinds import EFFECTS, contents

ROOT = Path(pytest_wfstate.__file__).parents[1]


class Worker:
    """A process that does one job after another."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.stores.file.workers"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def start(self, *job: object) -> None:
        self.stdin.write(shlex.join(map(str, job)) + "\n")
        self.stdin.flush()

    def reported(self, at_most: int | None = None) -> list[int]:
        """Wait until the worker is done, dead, or has reported `at_most` numbers, and return every number reported."""
        lines = iter(self.stdout.readline, "")
        whole = (line.strip() for line in lines if line.endswith("\n"))
        return [int(word) for word in itertools.islice(itertools.takewhile("done".__ne__, whole), at_most)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

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


@pytest.mark.parametrize("count", [2, 4])
def test_no_mark_of_several_processes_is_lost(tmp_path: Path, workers: list[Worker], count: int) -> None:
    for n, worker in enumerate(workers[:count]):
        worker.start("mark", tmp_path, "power", n * 60, 60)

    acknowledged = [n for worker in workers[:count] for n in worker.reported()]

    task = EFFECTS.load(EFFECTS.open(tmp_path), "a")
    assert sorted(acknowledged) == list(range(count * 60))
    assert sorted(EFFECTS.items(task)) == list(range(count * 60))
    assert (task.step_index, len(task.completed_tool_ids)) == (count * 60, count * 60)


@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_mark_the_same_effects_mark_each_once(tmp_path: Path, workers: list[Worker], count: int) -> None:
    for worker in workers[:count]:
        worker.start("mark", tmp_path, "process", 0, 100)

    acknowledged = [worker.reported() for worker in workers[:count]]

    task = EFFECTS.load(EFFECTS.open(tmp_path), "a")
    assert acknowledged == [list(range(100))] * count
    assert EFFECTS.items(task) == list(range(100))
    assert task.step_index == 100


@pytest.mark.parametrize("count", [2, 4])
def test_no_run_is_claimed_by_two_processes(tmp_path: Path, workers: list[Worker], count: int) -> None:
    store = FilePausedStore(tmp_path, "process")
    for n in range(100):
        store.save(samples.paused(f"run-{n}"))
    for worker in workers[:count]:
        worker.start("claim", tmp_path, 100)

    claimed = Counter(n for worker in workers[:count] for n in worker.reported())

    assert claimed == Counter(range(100))
    assert store.recover_orphaned() == 0
    assert contents(tmp_path) == {}


def test_a_reader_in_another_process_sees_marks_come_and_never_go(tmp_path: Path, workers: list[Worker]) -> None:
    reader = EFFECTS.open(tmp_path)
    seen: list[int] = []

    def read() -> int:
        task = EFFECTS.load(reader, "a")
        seen.append(0 if task is None else len(EFFECTS.items(task)))
        return seen[-1]

    workers[0].start("mark", tmp_path, "process", 0, 400)
    while read() < 400 and workers[0].process.poll() is None:
        pass

    assert workers[0].reported() == list(range(400))
    assert seen == sorted(seen)
    assert EFFECTS.items(EFFECTS.load(reader, "a")) == list(range(400))


@pytest.mark.parametrize("acknowledged", [1, 100])
def test_what_a_killed_process_was_acknowledged_is_there_and_work_goes_on(tmp_path: Path, acknowledged: int) -> None:
    worker = Worker()
    assert worker.reported() == []
    worker.start("mark", tmp_path, "process", 0, 0)
    numbers = worker.reported(at_most=acknowledged)

    worker.kill()
    numbers += worker.reported()
    worker.end()

    store = EFFECTS.open(tmp_path)
    items = EFFECTS.items(EFFECTS.load(store, "a"))
    assert numbers == list(range(len(numbers)))
    assert items == list(range(len(items)))
    assert acknowledged <= len(numbers) <= len(items) <= len(numbers) + 1
    EFFECTS.change(store, "a", 10**6)
    assert EFFECTS.items(EFFECTS.load(EFFECTS.open(tmp_path), "a")) == [*items, 10**6]


def test_threads_that_share_a_handle_lose_nothing(tmp_path: Path) -> None:
    store = FileEffectStore(tmp_path, "process")
    seen: list[list[str]] = []

    async def write(worker: int) -> None:
        for n in range(50):
            await store.mark_step_complete("a", f"{worker}-{n}", samples.effect(f"{worker}-{n}"))

    async def read(writers: list[asyncio.Task[None]]) -> None:
        while not all(writer.done() for writer in writers):
            task = await store.load_checkpoint("a")
            seen.append([] if task is None else [effect.tool_use_id for effect in task.side_effects_log])

    async def main() -> None:
        writers = [asyncio.create_task(write(worker)) for worker in range(4)]
        await asyncio.gather(*writers, read(writers), read(writers))

    asyncio.run(main())

    task = asyncio.run(store.load_checkpoint("a"))
    assert task is not None
    final = [effect.tool_use_id for effect in task.side_effects_log]
    assert sorted(final) == sorted(f"{worker}-{n}" for worker in range(4) for n in range(50))
    assert all(final[: len(items)] == items for items in seen)
    assert len(seen) > 2


def test_threads_that_share_a_paused_handle_claim_each_run_once(tmp_path: Path) -> None:
    store = FilePausedStore(tmp_path, "process")
    for n in range(40):
        store.save(samples.paused(f"run-{n}"))

    async def claim() -> list[str]:
        runs = [await asyncio.to_thread(store.claim, f"run-{n}") for n in range(40)]
        return [run.run_id for run in runs if run is not None]

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(claim() for _ in range(4)))

    claimed = [run for runs in asyncio.run(main()) for run in runs]

    assert Counter(claimed) == Counter(f"run-{n}" for n in range(40))
