"""Each op has the line of the user's code that caused it, whatever thread made it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import os
import queue
import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os
import aiosqlite
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
    assert all(line is not None and line.path == __file__ for line in lines), lines
    return {line.text for line in lines if line is not None}


def make_folders() -> Callable[..., None]:
    """Return a function that makes the folders of a queue. It has no file, so it is not the user's code."""
    names: dict[str, Any] = {"os": os}
    exec("def make(folders):\n    for folder in iter(folders.get, None): os.mkdir(folder)", names)
    made: Callable[..., None] = names["make"]
    return made


class Idle:
    async def wait(self) -> None:
        pass


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


def test_the_line_of_what_a_thread_takes_from_a_queue_is_where_it_was_put_there(home: Path) -> None:
    def workload(home: Path) -> None:
        folders: queue.Queue[Path | None] = queue.Queue()
        thread = threading.Thread(target=make_folders(), args=(folders,))
        thread.start()
        folders.put(home / "a")  # first
        folders.put(home / "b")  # second
        folders.put(None)
        thread.join()

    assert {line.rpartition("# ")[2] for line in lines_of(workload, home)} == {"first", "second"}


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "LifoQueue"])
def test_what_was_in_a_queue_is_not_kept(home: Path, kind: str) -> None:
    with Recorder(home):
        items = getattr(queue, kind)()
        item = Idle()
        items.put(item)
        assert items.get() is item
        alive = weakref.ref(item)
        del item
        assert alive() is None


def test_the_line_of_aiosqlite_is_the_call_that_caused_it(home: Path) -> None:
    async def workload() -> None:
        async with aiosqlite.connect(home / "db") as db:  # connect
            await db.execute("create table notes (text)")  # create
            await db.execute("insert into notes values ('a')")  # insert
            await db.commit()  # commit
        for thread in set(threading.enumerate()) - before:
            thread.join()

    before = set(threading.enumerate())
    assert {line.rpartition("# ")[2] for line in lines_of(lambda _: asyncio.run(workload()), home)} == {
        "connect",
        "create",
        "insert",
        "commit",
    }


def test_the_line_of_a_thread_that_is_older_is_where_it_is_waited_for(home: Path) -> None:
    as_sync(Idle()).wait()  # from here on its thread waits, too
    folders: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
    thread = threading.Thread(target=make_folders(), args=(folders,))
    thread.start()

    def workload(home: Path) -> None:
        for item in (home / "a", None):
            folders.put(item)
        thread.join()  # here

    lines = lines_of(workload, home)
    assert lines <= {"folders.put(item)", "thread.join()  # here"}


def test_the_line_in_a_store_that_is_installed_is_its_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    (installed / "my_store").mkdir(parents=True)
    (installed / "my_store" / "__init__.py").write_text("from my_store.files import save\n")
    (installed / "my_store" / "files.py").write_text(
        "import aiofiles, asyncio, os\n"
        "def save(path):\n"
        "    os.mkdir(path)\n"
        "    asyncio.run(write(path / 'text'))\n"
        "async def write(path):\n"
        "    async with aiofiles.open(path, 'w') as file:\n"
        "        await file.write('text')\n"
        "        await file.flush()\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    store = importlib.import_module("my_store")
    with Recorder(home) as recorder:
        store.save(home / "a")
    assert [item.where.text for item in recorder.trace().items if item.where] == [
        "os.mkdir(path)",
        "async with aiofiles.open(path, 'w') as file:",
        "await file.flush()",
    ]


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
