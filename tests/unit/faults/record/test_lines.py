"""Each op has the line of the user's code that caused it, whatever thread made it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import shutil
import threading
from pathlib import Path

import aiofiles
import aiofiles.os
import anyio
import pytest

from pytest_wfstate import samples
from pytest_wfstate.faults.record.recorder import Recorder
from pytest_wfstate.stores.adapt import as_sync
from pytest_wfstate.stores.file import FileEffectStore
from tests.unit.faults.record.recording import Workload


def lines_of(workload: Workload, home: Path) -> set[str]:
    with Recorder(home) as recorder:
        workload(home)
    assert recorder.unmeasured == []
    lines = [item.where for item in recorder.trace().items]
    assert lines
    assert all(line is not None and line.path == __file__ for line in lines)
    return {line.text for line in lines if line is not None}


def test_the_line_is_in_the_users_code(home: Path) -> None:
    def workload(home: Path) -> None:
        shutil.copytree(home, home.parent / "copy")
        (home / "a").write_text("1")

    assert lines_of(workload, home) == {'(home / "a").write_text("1")'}


def test_the_line_follows_into_threads(home: Path) -> None:
    def workload(home: Path) -> None:
        thread = threading.Thread(target=os.mkdir, args=(home / "a",))
        thread.start()  # here
        thread.join()

    assert lines_of(workload, home) == {"thread.start()  # here"}


def test_the_line_follows_into_pools(home: Path) -> None:
    def workload(home: Path) -> None:
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            pool.submit(os.mkdir, home / "a")  # first
            pool.submit(os.mkdir, home / "b")  # second

    assert lines_of(workload, home) == {
        'pool.submit(os.mkdir, home / "a")  # first',
        'pool.submit(os.mkdir, home / "b")  # second',
    }


def test_the_line_of_work_in_a_thread_is_where_it_is_awaited(home: Path) -> None:
    async def workload() -> None:
        await asyncio.to_thread(os.mkdir, home / "a")  # to_thread
        await asyncio.get_running_loop().run_in_executor(None, os.mkdir, home / "b")  # executor
        async with aiofiles.open(home / "c", "w") as file:  # aiofiles.open
            await file.write("1")  # aiofiles.write
            await file.flush()  # aiofiles.flush

    assert {line.rpartition("# ")[2] for line in lines_of(lambda _: asyncio.run(workload()), home)} == {
        "to_thread",
        "executor",
        "aiofiles.open",
        "aiofiles.flush",
    }


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_line_follows_through_anyio_and_trio(backend: str, home: Path) -> None:
    async def workload() -> None:
        await anyio.to_thread.run_sync(os.mkdir, home / "a")  # a
        await anyio.to_thread.run_sync(os.mkdir, home / "b")  # b

    recorded = lines_of(lambda _: anyio.run(workload, backend=backend), home)
    assert {line.rpartition("# ")[2] for line in recorded} == {"a", "b"}


def test_the_line_of_a_store_is_where_it_is_awaited(home: Path) -> None:
    async def workload() -> None:
        store = FileEffectStore(home / "effects")
        await store.save_checkpoint(samples.checkpoint("task-1"))

    assert lines_of(lambda _: asyncio.run(workload()), home) == {
        'await store.save_checkpoint(samples.checkpoint("task-1"))'
    }


def test_the_line_of_a_store_made_sync_is_where_it_is_called(home: Path) -> None:
    def workload(home: Path) -> None:
        store = as_sync(FileEffectStore(home / "effects"))
        store.save_checkpoint(samples.checkpoint("task-1"))  # first
        store.delete_checkpoint("task-1")  # second

    assert lines_of(workload, home) == {
        'store.save_checkpoint(samples.checkpoint("task-1"))  # first',
        'store.delete_checkpoint("task-1")  # second',
    }
