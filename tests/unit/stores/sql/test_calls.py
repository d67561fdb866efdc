"""Calls: queues are fair, and whatever a call holds is free when it ends, even if it is interrupted at any line."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pytest_wfstate import SqlEffectStore, SqlPausedStore, SqlResumeStore, SqlRunStore, as_sync, samples
from pytest_wfstate.stores.sql import calls, forks
from pytest_wfstate.stores.sql.calls import Call, FairQueue
from tests.unit.stores.sql.engines import POINT, in_call
from tests.unit.stores.sql.interrupts import InterruptedBySignal, interrupt_each_line
from tests.unit.stores.sql.places import Place

# Queues


def await_waiting(queue: FairQueue, count: int) -> None:
    while queue.waiting() != count:
        pass


def test_no_more_calls_have_a_slot_than_there_are() -> None:
    queue, lock = FairQueue(3), threading.Lock()
    inside, most = 0, 0

    def work(call: Call) -> None:
        nonlocal inside, most
        assert queue.enter(call)
        with lock:
            inside += 1
            most = max(most, inside)
        with lock:
            inside -= 1

    def make_calls(_: int) -> None:
        for _ in range(200):
            calls.run(work)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make_calls, range(8)))
    assert most <= 3
    assert queue.holder() is None


def test_calls_are_served_in_order_and_before_the_one_that_just_ended() -> None:
    queue = FairQueue(1)
    served: list[str] = []

    def enter(name: str) -> None:
        def work(call: Call) -> None:
            assert queue.enter(call)
            served.append(name)

        calls.run(work)

    def let_others_queue(call: Call) -> None:
        assert queue.enter(call)
        for count, name in enumerate(["first", "second", "third"], start=1):
            threads.submit(enter, name)
            await_waiting(queue, count)

    with ThreadPoolExecutor(3) as threads:
        calls.run(let_others_queue)
        enter("the one that just ended")
    assert served == ["first", "second", "third", "the one that just ended"]


def test_a_call_that_ended_without_leaving_stands_in_nobodys_way() -> None:
    """Two signals in a row may have kept it from leaving."""
    queue, ended, waiting = FairQueue(1), Call(), Call()
    with ended.lock:
        assert queue.enter(ended)
    with waiting.lock:
        assert queue.enter(waiting)
    assert queue.holder() is waiting


def test_a_call_waits_no_longer_than_its_limit() -> None:
    queue, first, second = FairQueue(1), Call(), Call()
    with first.lock, second.lock:
        assert queue.enter(first)
        assert not queue.enter(second, limit=0.05)
        second.end()
        assert queue.waiting() == 0


# Writers of one SQLite file


def test_writers_queue_across_the_handles_of_a_process(on_sqlite: Place) -> None:
    """SQLite alone would let those that come later overtake those that sleep."""
    handles = [on_sqlite.open(SqlResumeStore) for _ in range(5)]
    for handle in handles:
        handle.load("a")
    queue = handles[0]._database.dialect._writers
    served: list[int] = []

    def let_others_queue(_: Any) -> None:
        for number, handle in enumerate(handles[1:], start=1):
            threads.submit(serve, number, handle)
            await_waiting(queue, number)

    def serve(number: int, handle: Any) -> None:
        in_call(handle, lambda _: served.append(number), writes=True)

    with ThreadPoolExecutor(5) as threads:
        in_call(handles[0], let_others_queue, writes=True)
    assert served == [1, 2, 3, 4]
    for handle in handles:
        handle.close()


def test_a_writer_that_waits_too_long_for_its_turn_is_refused(on_sqlite: Place) -> None:
    store, hasty = on_sqlite.open(SqlResumeStore), Place(f"{on_sqlite.url}?timeout=0.05", "p").open(SqlResumeStore)
    assert hasty.load("a") is None
    owner = threading.get_ident()

    def wait(_: Any) -> None:
        with pytest.raises(OperationalError, match=f"database is locked: thread {owner} of this process.*0.05 seconds"):
            threads.submit(hasty.save, POINT).result()

    with ThreadPoolExecutor(1) as threads:
        in_call(store, wait, writes=True)
    assert hasty.load("a") is None
    hasty.save(POINT)
    assert hasty.load("a") == POINT
    store.close()
    hasty.close()


# Interrupts


class Interrupted:
    """A call that is interrupted again and again, and what it needs."""

    kind: type[BaseException] = InterruptedBySignal

    def __init__(self, place: Place) -> None:
        self.place = place
        # On SQLite, a call queues for the file too, and its statements are executed one after the other.
        self.callers, self.rounds = (3, 2) if place.is_sqlite else (2, 1)

    def call(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """Prepare the next call."""

    def close(self) -> None:
        """Close the handles."""

    def verify(self) -> None:
        """Fail if something was lost."""


class FirstLoad(Interrupted):
    """The first call of all: it connects, and creates the tables. Later calls of a handle show the rest."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.callers, self.rounds = 1, 1
        self._other: Any = None if place.is_sqlite else place.open(SqlResumeStore)
        self._store = place.open(SqlResumeStore)

    def call(self) -> None:
        assert self._store.load("a") is None

    def reset(self) -> None:
        self._store.close()
        if self._other is not None:
            self._other.drop()
        else:
            for path in Path(self.place.url.removeprefix("sqlite:///")).parent.iterdir():
                path.unlink()
        self._store = self.place.open(SqlResumeStore)

    def close(self) -> None:
        self._store.close()
        if self._other is not None:
            self._other.close()

    def verify(self) -> None:
        with self.place.open(SqlResumeStore) as store:
            store.save(POINT)
            assert store.load("a") == POINT


class Claim(Interrupted):
    """A claim: it reads, and changes what it has read."""

    kind = KeyboardInterrupt

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._store, self._other = place.open(SqlPausedStore), place.open(SqlPausedStore)
        self._other.save(samples.paused("a"))
        self._store.load("a")

    def call(self) -> None:
        self._store.claim("a")

    def reset(self) -> None:
        self._other.recover_orphaned()

    def close(self) -> None:
        self._store.close()
        self._other.close()

    def verify(self) -> None:
        with self.place.open(SqlPausedStore) as store:
            store.recover_orphaned()
            assert store.claim("a") == samples.paused("a")


class Mark(Interrupted):
    """A mark: it takes its turn, reads, and makes several changes at once."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._store, self._numbers = as_sync(place.open(SqlEffectStore)), itertools.count()
        self.call()

    def call(self) -> None:
        use = f"use-{next(self._numbers)}"
        self._store.mark_step_complete("a", use, samples.effect(use))

    def close(self) -> None:
        self._store.close()

    def verify(self) -> None:
        with as_sync(self.place.open(SqlEffectStore)) as store:
            task = store.load_checkpoint("a")
        assert task.completed_tool_ids == {effect.tool_use_id for effect in task.side_effects_log}
        assert task.step_index == len(task.side_effects_log)


def check_free() -> None:
    """Fail if a call that has ended still holds something."""
    assert not forks._calls
    assert not forks._waiting
    for queue in calls._queues:
        assert not [call for call in queue._calls if call.lock.locked()]
    assert not [guard for guard in (forks.guard, *(queue._guard for queue in calls._queues)) if guard._is_owned()]


CALLS = pytest.mark.parametrize("case", [FirstLoad, Claim, Mark])


@CALLS
def test_a_call_on_sqlite_that_is_interrupted_at_any_line_leaves_nothing_locked(
    on_sqlite: Place, case: type[Interrupted]
) -> None:
    one = case(on_sqlite)
    lines = 0
    for _ in interrupt_each_line(one.call, one.kind, one.callers, one.rounds):
        lines += 1
        check_free()
        with sqlite3.connect(on_sqlite.url.removeprefix("sqlite:///"), timeout=0, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")  # "database is locked" at once, if it is
            other.execute("ROLLBACK")
        other.close()
        one.reset()
    assert lines > 200
    one.close()
    one.verify()


@CALLS
def test_a_call_on_postgres_that_is_interrupted_at_any_line_leaves_nothing_locked(
    on_postgres: Place, case: type[Interrupted]
) -> None:
    one = case(Place(f"{on_postgres.url}?application_name={on_postgres.prefix}", on_postgres.prefix))
    engine = on_postgres.engine(isolation_level="AUTOCOMMIT")
    locks = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    sessions = text(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{on_postgres.prefix}'")
    lines = 0
    with engine.connect() as onlooker:
        for _ in interrupt_each_line(one.call, one.kind, one.callers, one.rounds):
            lines += 1
            check_free()
            while onlooker.execute(locks).scalar_one():
                pass  # the server needs a moment to notice
            one.reset()
        one.close()
        while onlooker.execute(sessions).scalar_one():
            pass
    assert lines > 200
    one.verify()
    engine.dispose()


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupt the main thread, wherever it waits."""

    def raises(*_: object) -> None:
        raise InterruptedBySignal

    before = signal.signal(signal.SIGUSR1, raises)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_a_call_that_is_interrupted_while_it_waits_leaves_the_queue(interrupt: Callable[[], None]) -> None:
    queue, holder = FairQueue(1), Call()
    with holder.lock, ThreadPoolExecutor(1) as threads:
        assert queue.enter(holder)

        def interrupt_waiting() -> None:
            await_waiting(queue, 1)
            interrupt()

        interrupting = threads.submit(interrupt_waiting)
        with pytest.raises(InterruptedBySignal):
            calls.run(queue.enter)
        interrupting.result()
        assert queue.waiting() == 0


def test_a_change_that_is_interrupted_while_postgres_waits_for_a_lock_is_never_made(
    on_postgres: Place, interrupt: Callable[[], None]
) -> None:
    """All of it was sent: without a request to cancel it, PostgreSQL would make it as soon as the lock is free."""
    store, other = as_sync(on_postgres.open(SqlRunStore)), on_postgres.open(SqlRunStore)
    store.upsert_step("a", samples.step("first"))
    engine = on_postgres.engine(isolation_level="AUTOCOMMIT")
    waits = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    def interrupt_waiting() -> None:
        with engine.connect() as onlooker:
            while not onlooker.execute(waits).scalar_one():
                pass
        interrupt()

    def interrupted(transaction: Any) -> None:
        transaction.run([*other._database.dialect.begin(transaction, f"{on_postgres.prefix}_runs a")])
        interrupting = threads.submit(interrupt_waiting)
        with pytest.raises(InterruptedBySignal):
            store.upsert_step("a", samples.step("second"))
        interrupting.result()
        with engine.connect() as onlooker:
            while onlooker.execute(waits).scalar_one():
                pass
        transaction.execute_text("ROLLBACK")

    with ThreadPoolExecutor(1) as threads:
        in_call(other, interrupted)
    assert [step.step_id for step in store.list_steps("a")] == ["first"]
    store.close()
    other.close()
    engine.dispose()
