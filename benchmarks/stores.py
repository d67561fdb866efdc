"""Measure the stores: calls per second for every contract on every backend, and whether they slow down as they grow.

    python benchmarks/stores.py [--home DIR] [--url URL ...] [--quick]

DIR should be on a real disk. File stores that grow large do not fsync (see file_stores.py). A URL is that of a
PostgreSQL or Redis server, where nothing is left behind; without one, servers found on this machine are started.
--quick makes a tenth of the changes and runs. Exits 1 if a ratio is above its limit, or NOT_MEASURED because something
is missing: `pip install -e '.[bench]'` brings all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import inspect
import itertools
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest_wfstate
from pytest_wfstate import samples
from pytest_wfstate.faults.servers import NoServer, Server, leftovers
from pytest_wfstate.faults.servers.postgres import PostgresServer
from pytest_wfstate.faults.servers.redis import RedisServer

LIMIT_OF_GROWTH, LIMIT_OF_CROWDS, LIMIT_OF_PEERS = 1.5, 2.0, 1.0
CALLS, ROUNDS, BLOCKS, PICKED = 200, 3, 15, 50
UNCOUNTED, PAIRS, RUNS = 1_000, 2_000, 5
WORKERS, PARALLEL_CALLS, PARALLEL_ROUNDS = 16, 50, 20
FEW = 100
FEW_TASKS, MANY_TASKS, LENGTH, TURNS = 10, 1_000, 60, 1_000
CONTRACTS = ("EffectStore", "PausedStore", "ResumeStore", "SnapshotStore", "RunStore")


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Where stores are kept, and how to open one in a place of its own."""

    name: str
    open: Callable[[str, str], Any]
    grown: Callable[[str, str], Any] | None = None
    """Opens a store that will grow large, where the usual way would take too long."""
    url: str = ""
    """That of its server, if it has one."""

    def growing(self) -> Backend:
        """Return the backend for stores that grow large."""
        return Backend(self.name, self.grown or self.open)


class NotMeasured(Exception):
    """A comparison needs something that is not there."""


class Row(NamedTuple):
    """One comparison, in microseconds per call."""

    what: str
    base: float
    ours: float
    limit: float

    @property
    def ratio(self) -> float:
        """Our time divided by the baseline's."""
        return self.ours / self.base

    def __str__(self) -> str:
        verdict = "ok" if self.ratio <= self.limit else f"above {self.limit}"
        return f"{self.what:<34} {self.base:>9.1f} {self.ours:>9.1f} {self.ratio:>7.2f}  {verdict}"


def blocking(store: Any, method: str) -> Callable[..., Any]:
    """Return a method without the thread of an async store: switching threads is not the store's cost."""
    inner = inspect.unwrap(getattr(type(store), method))
    if not inspect.iscoroutinefunction(inner):
        return functools.partial(inner, store)

    def call(*args: Any) -> Any:
        coroutine = inner(store, *args)
        try:
            coroutine.send(None)  # a memory store never waits
        except StopIteration as done:
            return done.value
        raise AssertionError(f"{method} waits for something")

    return call


def timed(call: Callable[[int], Any], numbers: range) -> float:
    """Return the microseconds per call."""
    start = time.perf_counter()
    for n in numbers:
        call(n)
    return (time.perf_counter() - start) / len(numbers) * 1e6


# Calls per second


def operations(backend: Backend) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Yield every method as a call of a number. Each call needs what the one before it left."""
    stores = {protocol: backend.open(protocol, f"ops{uuid.uuid4().hex[:8]}") for protocol in CONTRACTS}
    for protocol, method, args in OPERATIONS:
        call = blocking(stores[protocol], method)
        yield f"{protocol}.{method}", lambda n, call=call, args=args: call(*args(n))  # type: ignore[misc]
    for store in stores.values():
        finish(store)


def finish(store: Any) -> None:
    """Drop the tables of a store on a server."""
    if hasattr(store, "drop"):
        store.drop()
    store.close()


OPERATIONS: list[tuple[str, str, Callable[[int], tuple[Any, ...]]]] = [
    ("EffectStore", "save_checkpoint", lambda n: (samples.checkpoint(f"task-{n}"),)),
    ("EffectStore", "mark_step_complete", lambda n: (f"task-{n}", "use-1", samples.effect("use-1"))),
    ("EffectStore", "load_checkpoint", lambda n: (f"task-{n}",)),
    ("EffectStore", "delete_checkpoint", lambda n: (f"task-{n}",)),
    ("PausedStore", "save", lambda n: (samples.paused(f"run-{n}"),)),
    ("PausedStore", "load", lambda n: (f"run-{n}",)),
    ("PausedStore", "claim", lambda n: (f"run-{n}",)),
    ("PausedStore", "complete", lambda n: (f"run-{n}",)),
    ("PausedStore", "remove", lambda n: (f"run-{n}",)),
    ("ResumeStore", "save", lambda n: (samples.resume_point(f"run-{n}"),)),
    ("ResumeStore", "load", lambda n: (f"run-{n}",)),
    ("ResumeStore", "delete", lambda n: (f"run-{n}",)),
    ("SnapshotStore", "save", lambda n: (samples.snapshot(f"run-{n}"),)),
    ("SnapshotStore", "load", lambda n: (samples.key(f"run-{n}"),)),
    ("SnapshotStore", "latest", lambda n: ("wf", f"run-{n}")),
    ("SnapshotStore", "list", lambda n: ("wf", f"run-{n}")),
    ("SnapshotStore", "fork", lambda n: (samples.key(f"run-{n}"),)),
    ("RunStore", "create_run", lambda n: (samples.run(f"run-{n}"),)),
    ("RunStore", "get_run", lambda n: (f"run-{n}",)),
    ("RunStore", "update_context", lambda n: (f"run-{n}", {"n": n})),
    ("RunStore", "upsert_step", lambda n: (f"run-{n}", samples.step("s"))),
    ("RunStore", "get_step", lambda n: (f"run-{n}", "s")),
    ("RunStore", "list_steps", lambda n: (f"run-{n}",)),
    ("RunStore", "delete_run", lambda n: (f"run-{n}",)),
]


def print_speeds(backends: list[Backend]) -> None:
    """Print the calls per second of every method on every backend."""
    columns = [{what: 1e6 / timed(call, range(CALLS)) for what, call in operations(backend)} for backend in backends]
    print("\ncalls per second, each acknowledged when it is on disk" + " " * 4)
    print(f"{'':<34}" + "".join(f"{backend.name:>10}" for backend in backends))
    for what in columns[0]:
        print(f"{what:<34}" + "".join(f"{column[what]:>10,.0f}" for column in columns))


# Growth


def growths(backend: Backend, changes: int) -> list[Row]:
    """Compare the last changes of a long run with its first: the best of several rounds, since noise only adds."""
    part = changes // 10
    rows = []
    for what, protocol, method, args in GROWING:
        rounds = []
        for _ in range(ROUNDS):
            store = backend.open(protocol, f"grow{uuid.uuid4().hex[:8]}")
            method_of = blocking(store, method)

            def call(n: int, method_of: Any = method_of, args: Any = args) -> Any:
                return method_of(*args(n))

            call(changes)  # creates tables, compiles statements
            parts = [timed(call, range(first, first + part)) for first in range(0, changes, part)]
            rounds.append((parts[0], parts[-1]))
            finish(store)
        base, ours = (min(column) for column in zip(*rounds, strict=True))
        rows.append(Row(f"{backend.name}: {what}", base, ours, LIMIT_OF_GROWTH))
    return rows


GROWING: list[tuple[str, str, str, Callable[[int], tuple[Any, ...]]]] = [
    ("mark", "EffectStore", "mark_step_complete", lambda n: ("a", f"use-{n}", samples.effect(f"use-{n}"))),
    ("upsert_step", "RunStore", "upsert_step", lambda n: ("a", samples.step(f"step-{n}"))),
    ("save of a snapshot", "SnapshotStore", "save", lambda n: (samples.snapshot("a", n),)),
]


class Turns:
    """A store that marks many tasks in turn, each with some marks already."""

    def __init__(self, backend: Backend, tasks: int) -> None:
        self.store = backend.open("EffectStore", f"turns{uuid.uuid4().hex[:8]}")
        self._call = blocking(self.store, "mark_step_complete")
        self._tasks, self._marks, save = tasks, itertools.count(), blocking(self.store, "save_checkpoint")
        done = [f"before-{n:03}" for n in range(LENGTH)]
        log = [samples.effect(use) for use in done]
        for n in range(tasks):
            task = samples.checkpoint(
                f"task-{n}", step_index=LENGTH, completed_tool_ids=set(done), side_effects_log=log
            )
            save(task)

    def mark(self, _: int) -> None:
        """Mark the next task."""
        n = next(self._marks)
        use = f"use-{n:07}"
        self._call(f"task-{n % self._tasks}", use, samples.effect(use))


def turns(backend: Backend, blocks: int) -> Row:
    """Compare marks of many tasks in turn with marks of a few, alternating. The first block does not count."""
    few, many = Turns(backend, FEW_TASKS), Turns(backend, MANY_TASKS)
    times = [(timed(few.mark, range(TURNS)), timed(many.mark, range(TURNS))) for _ in range(1 + blocks)]
    base, ours = (statistics.median(column) for column in zip(*times[1:], strict=True))
    finish(few.store)
    finish(many.store)
    return Row(f"{backend.name}: mark", base, ours, LIMIT_OF_GROWTH)


class Crowd:
    """Stores with many runs, and a few of them to query, spread evenly."""

    def __init__(self, backend: Backend, size: int) -> None:
        place = f"crowd{uuid.uuid4().hex[:8]}"
        self.paused, self.snapshots = backend.open("PausedStore", place), backend.open("SnapshotStore", f"{place}s")
        pause, save = blocking(self.paused, "save"), blocking(self.snapshots, "save")
        for n in range(size):
            pause(samples.paused(f"run-{n}"))
            save(samples.snapshot(f"run-{n}"))
        self._step = size // PICKED

    def took(self, what: str) -> float:
        """Make a call for each of the few, then restore them."""
        store = self.snapshots if what == "latest" else self.paused
        call = blocking(store, what)
        args = ("wf",) if what == "latest" else ()
        took = timed(lambda n: call(*args, f"run-{n * self._step}"), range(PICKED))
        if what == "claim":
            self.paused.recover_orphaned()
        return took


def crowds(backend: Backend, many: int) -> list[Row]:
    """Compare calls among many runs with calls among few, alternating."""
    small, large = Crowd(backend, FEW), Crowd(backend, many)
    rows = []
    for what in ("claim", "load", "latest"):
        blocks = [(small.took(what), large.took(what)) for _ in range(BLOCKS)]
        base, ours = (statistics.median(column) for column in zip(*blocks, strict=True))
        rows.append(Row(f"{backend.name}: {what}", base, ours, LIMIT_OF_CROWDS))
    for crowd in (small, large):
        finish(crowd.paused)
        finish(crowd.snapshots)
    return rows


# Peers


def against_langgraph(home: Path) -> list[Row]:
    """Compare saving a snapshot in SQLite with langgraph's savers on the same values.

    Each builds its record and saves it. Calls alternate, because the speed of a disk varies, and so does who is first.
    The first rounds do not count: they create tables and grow the logs. Our store is async: it is compared with their
    async saver as it is, and with their blocking saver without its thread.

    Raises:
        NotMeasured: their savers are not installed.

    """
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    except ModuleNotFoundError as missing:
        raise NotMeasured(f"{missing.name} is not installed: pip install langgraph-checkpoint-sqlite") from None

    async def against_async_saver(run: int) -> Row:
        async with (
            AsyncSqliteSaver.from_conn_string(str(home / f"async-peer-{run}.db")) as peer,
            pytest_wfstate.SqlSnapshotStore(f"sqlite:///{home}/async-ours-{run}.db") as store,
        ):
            return await _compared(
                f"run {run}: save, langgraph's aput",
                lambda n: peer.aput(*_checkpoint(n)),
                lambda n: store.save(samples.snapshot("a", n)),
            )

    async def against_saver(run: int) -> Row:
        with SqliteSaver.from_conn_string(str(home / f"peer-{run}.db")) as peer:
            store = pytest_wfstate.SqlSnapshotStore(f"sqlite:///{home}/ours-{run}.db")
            save_blocking = blocking(store, "save")

            async def put(n: int) -> None:
                peer.put(*_checkpoint(n))

            async def save(n: int) -> None:
                save_blocking(samples.snapshot("a", n))

            row = await _compared(f"run {run}: save without thread, put", put, save)
            store.close()
            return row

    runs = range(1, RUNS + 1)
    return [asyncio.run(against(run)) for run in runs for against in (against_async_saver, against_saver)]


def _checkpoint(n: int) -> tuple[Any, ...]:
    from langgraph.checkpoint.base import empty_checkpoint

    config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
    values = samples.snapshot("a").values
    return config, {**empty_checkpoint(), "channel_values": values}, {"source": "loop", "step": n}, {}


async def _compared(
    what: str, theirs: Callable[[int], Awaitable[object]], ours: Callable[[int], Awaitable[object]]
) -> Row:
    pairs = []
    for n in range(UNCOUNTED + PAIRS):
        took = {}
        for call in (theirs, ours) if n % 2 else (ours, theirs):
            start = time.perf_counter()
            await call(n)
            took[call] = time.perf_counter() - start
        pairs.append((took[theirs], took[ours]))
    base, own = (statistics.median(column) * 1e6 for column in zip(*pairs[UNCOUNTED:], strict=True))
    return Row(what, base, own, LIMIT_OF_PEERS)


def against_langgraph_in_postgres(backend: Backend) -> list[Row]:
    """Compare saving snapshots by several threads with langgraph's saver, in the same server.

    Each thread has a saver of its own, because a saver has one lock for all its calls. Rounds alternate, and so does
    who is first. The first round does not count.

    Raises:
        NotMeasured: their saver is not installed.

    """
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
    except ModuleNotFoundError as missing:
        raise NotMeasured(f"{missing.name} is not installed: pip install langgraph-checkpoint-postgres") from None

    with ExitStack() as ends:
        schema = f"bench{uuid.uuid4().hex[:8]}"
        links = [
            ends.enter_context(psycopg.connect(backend.url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
            for _ in range(WORKERS)
        ]
        links[0].execute(f"CREATE SCHEMA {schema}")
        ends.callback(links[0].execute, f"DROP SCHEMA {schema} CASCADE")
        for link in links:
            link.execute(f"SET search_path TO {schema}")
        savers = [PostgresSaver(link) for link in links]
        savers[0].setup()
        store = backend.open("SnapshotStore", f"peer{uuid.uuid4().hex[:8]}")
        ends.callback(finish, store)
        save_blocking, step = blocking(store, "save"), itertools.count()

        def put(worker: int) -> None:
            config, *checkpoint = _checkpoint(next(step))
            config["configurable"]["thread_id"] = f"run-{worker}"
            savers[worker].put(config, *checkpoint)

        def save(worker: int) -> None:
            save_blocking(samples.snapshot(f"run-{worker}", next(step)))

        rounds = []
        for n in range(1 + PARALLEL_ROUNDS):
            order = (put, save) if n % 2 else (save, put)
            took = {call: _by_threads(call) for call in order}
            rounds.append((took[put], took[save]))
    base, ours = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
    return [Row(f"{WORKERS} threads: save, langgraph's put", base, ours, LIMIT_OF_PEERS)]


def _by_threads(call: Callable[[int], Any]) -> float:
    """Return the microseconds per call, if several threads make calls at once. Each call gets the thread's number."""

    def work(worker: int) -> None:
        for _ in range(PARALLEL_CALLS):
            call(worker)

    with ThreadPoolExecutor(WORKERS) as threads:
        start = time.perf_counter()
        list(threads.map(work, range(WORKERS)))
        return (time.perf_counter() - start) / (WORKERS * PARALLEL_CALLS) * 1e6


def table(title: str, base: str, ours: str, measure: Callable[[], list[Row]]) -> bool:
    """Measure and print a comparison. Return whether all of it is within its limits."""
    try:
        rows = measure()
    except NotMeasured as missing:
        print(f"\n{title}\nNOT_MEASURED: {missing}")
        return False
    print(f"\n{title}\n{'microseconds per call':<34} {base:>9} {ours:>9} {'ratio':>7}")
    for row in rows:
        print(row)
    return all(row.ratio <= row.limit for row in rows)


@contextmanager
def opened(home: Path, urls: list[str]) -> Iterator[list[Backend]]:
    """Yield the backends: those that need nothing, and the servers."""

    def store(name: str) -> Any:
        return getattr(pytest_wfstate, name)

    def on_files(durability: str, protocol: str, place: str) -> Any:
        return store(f"File{protocol}")(home / place / protocol, durability)

    def on_server(url: str, protocol: str, place: str) -> Any:
        kind = "Redis" if url.startswith("redis") else "Sql"
        return store(f"{kind}{protocol}")(url, prefix=f"{run}{place}")

    run = f"bench{uuid.uuid4().hex[:8]}"
    with ExitStack() as ends:
        all_urls = urls or [ends.enter_context(server).url for server in own_servers()]
        for url in urls:
            ends.callback(leftovers.remove, url, [run])
        yield [
            Backend("memory", lambda protocol, _: store(f"Memory{protocol}")()),
            Backend("file", functools.partial(on_files, "power"), functools.partial(on_files, "process")),
            Backend(
                "sqlite", lambda protocol, place: store(f"Sql{protocol}")(f"sqlite:///{home}/{place}/{protocol}.db")
            ),
            *(Backend(url.partition(":")[0][:8], functools.partial(on_server, url), url=url) for url in all_urls),
        ]


def own_servers() -> Iterator[Server]:
    """Yield the servers found on this machine, set to acknowledge a change only once it is on disk."""
    kinds: list[type[PostgresServer | RedisServer]] = [PostgresServer, RedisServer]
    for kind in kinds:
        try:
            yield kind(on_disk=True)
        except NoServer as missing:
            print(missing)


def main() -> int:
    """Measure everything in a temporary folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path, default=Path.cwd(), help="a folder on a real disk (default: this one)")
    parser.add_argument("--url", action="append", default=[], help="a PostgreSQL or Redis server")
    parser.add_argument("--quick", action="store_true", help="a tenth of the changes and runs")
    given = parser.parse_args()
    changes, many, blocks = (1_000, 10_000, 3) if given.quick else (10_000, 100_000, BLOCKS)
    with tempfile.TemporaryDirectory(dir=given.home) as folder, opened(Path(folder), given.url) as backends:
        print_speeds(backends)
        growing = [backend.growing() for backend in backends]
        servers = {name: [each for each in backends if each.url.startswith(name)] for name in ("postgres", "redis")}

        def in_postgres() -> list[Row]:
            if not servers["postgres"]:
                raise NotMeasured("there is no PostgreSQL server, see above")
            return [row for backend in servers["postgres"] for row in against_langgraph_in_postgres(backend)]

        results = [
            table(
                f"{changes:,} changes of one run, best of {ROUNDS}",
                "first 10%",
                "last 10%",
                lambda: [row for backend in growing for row in growths(backend, changes)],
            ),
            table(
                f"marks of several tasks in turn, medians of {blocks} blocks of {TURNS:,}",
                f"{FEW_TASKS} tasks",
                f"{MANY_TASKS:,}",
                lambda: [turns(backend, blocks) for backend in growing],
            ),
            table(
                f"one of several runs in the store, medians of {BLOCKS}",
                f"{FEW:,} runs",
                f"{many:,}",
                lambda: [row for backend in growing for row in crowds(backend, many)],
            ),
            table(f"SQLite, medians of {PAIRS:,} pairs", "langgraph", "ours", lambda: against_langgraph(Path(folder))),
            table(f"PostgreSQL, medians of {PARALLEL_ROUNDS} rounds", "langgraph", "ours", in_postgres),
        ]
    for name in (name for name, found in servers.items() if not found):
        results.append(False)
        print(f"\nNOT_MEASURED: {name}: give its --url, or pip install -e '.[bench]' to have a server started")
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
