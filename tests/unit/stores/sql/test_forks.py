"""Forks: parent and child go on with one handle, and neither harms the other."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pytest_wfstate import SqlPausedStore, SqlResumeStore, samples
from pytest_wfstate.stores.sql import forks as forks_module
from tests.unit.stores.sql.engines import in_call
from tests.unit.stores.sql.places import Place

_PID = text("SELECT pg_backend_pid()")
_SESSIONS = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
_about_to_fork: list[Callable[[], None]] = []
os.register_at_fork(before=lambda: [call() for call in _about_to_fork])  # runs before that of the stores


class Child:
    """A forked process that makes one call after another on request, and then dies by SIGKILL."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        requests, self._request = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        for end in (requests, answers) if self.pid else (self._request, self._answers):
            os.close(end)  # so that a child ends with its parent
        if self.pid:
            return
        try:
            for call in calls:
                if not os.read(requests, 1):
                    break
                os.write(answers, b"y" if call() in (None, True) else b"n")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def succeeds(self) -> bool:
        """Request the next call, and return whether it succeeded."""
        os.write(self._request, b"x")
        return os.read(self._answers, 1) == b"y"

    def end(self) -> None:
        os.waitpid(self.pid, 0)


def saved(store: Any, run: str) -> Callable[[], object]:
    return lambda: store.save(samples.resume_point(run))


def test_what_a_child_saves_outlives_its_parents_handle(place: Place) -> None:
    """SQLite would have the parent remove the log that the child goes on writing to."""
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), saved(store, "second"))
    assert child.succeeds()
    store.close()
    assert child.succeeds()
    child.end()

    with place.open(SqlResumeStore) as again:
        assert [run for run in ("before", "first", "second") if again.load(run)] == ["before", "first", "second"]


def test_what_a_parent_saves_outlives_its_child(place: Place) -> None:
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), store.close, saved(store, "second"))
    assert child.succeeds()
    store.save(samples.resume_point("parent-1"))
    assert child.succeeds()
    store.save(samples.resume_point("parent-2"))
    assert child.succeeds()
    child.end()
    store.save(samples.resume_point("parent-3"))
    store.close()

    runs = ["before", "first", "second", "parent-1", "parent-2", "parent-3"]
    with place.open(SqlResumeStore) as again:
        assert [run for run in runs if again.load(run)] == runs


def test_a_run_is_claimed_by_parent_or_child(place: Place) -> None:
    store = place.open(SqlPausedStore)
    store.save(samples.paused("a"))
    child = Child(lambda: store.claim("a") is not None, lambda: store.complete("a"))
    assert child.succeeds()
    assert store.claim("a") is None
    store.complete("a")  # as one who never claimed it: a worker that was restarted
    assert store.recover_orphaned() == 0
    assert child.succeeds()
    child.end()
    store.close()


def test_a_child_reconnects_to_postgres(on_postgres: Place) -> None:
    store = on_postgres.open(SqlResumeStore)

    def backend() -> int:
        return int(in_call(store, lambda transaction: transaction.execute_text("SELECT pg_backend_pid()").value))

    own = backend()
    child = Child(lambda: backend() != own)
    assert child.succeeds()
    child.end()
    assert backend() == own
    store.close()


def test_a_child_has_connections_of_its_own_on_an_engine_of_its_parents(on_postgres: Place) -> None:
    """The engine has one, though the handle that was on it is gone."""
    engine = on_postgres.engine()

    def backend() -> int:
        with engine.connect() as connection:
            return int(connection.execute(_PID).scalar_one())

    SqlResumeStore(engine, prefix=on_postgres.prefix).save(samples.resume_point())
    own = backend()
    child = Child(lambda: backend() != own)
    assert child.succeeds()
    child.end()
    assert backend() == own
    engine.dispose()


# A session of PostgreSQL lasts as long as anybody holds its socket, and so do its locks.


def sockets() -> set[str]:
    """Name the sockets that this process holds, each by a name that no other has."""
    links = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    return {name for name in links if name.startswith("socket:")}


def test_a_child_holds_no_connection_that_its_parent_keeps(on_postgres: Place) -> None:
    before = sockets()
    store = on_postgres.open(SqlResumeStore)
    store.save(samples.resume_point("a"))
    own = sockets() - before
    assert len(own) == 1
    child = Child(lambda: not own & sockets(), lambda: store.load("a") is not None)
    assert child.succeeds()
    assert child.succeeds()
    child.end()
    assert store.load("a") is not None
    assert sockets() - before == own
    store.close()


def test_a_child_holds_no_connection_that_is_idle_in_an_engine(on_postgres: Place) -> None:
    """Also none that no store has used."""
    before = sockets()
    engine = on_postgres.engine()
    with engine.connect(), engine.connect():
        own = sockets() - before
    assert len(own) == 2
    store = SqlResumeStore(engine, prefix=on_postgres.prefix)
    child = Child(lambda: not own & sockets(), saved(store, "child"))
    assert child.succeeds()
    assert child.succeeds()
    child.end()
    assert store.load("child") is not None
    assert sockets() - before == own
    engine.dispose()


@pytest.mark.parametrize("of", ["handle", "engine"])
def test_a_child_holds_no_connection_of_a_call_in_another_thread(on_postgres: Place, of: str) -> None:
    before = sockets()
    engine = on_postgres.engine()
    store: Any = SqlResumeStore(on_postgres.url if of == "handle" else engine, prefix=on_postgres.prefix)
    store.load("a")
    own = sockets() - before
    begun, goes_on = threading.Event(), threading.Event()

    def wait(transaction: Any) -> Any:
        begun.set()
        goes_on.wait()
        return transaction.execute_text("SELECT 1").value

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(in_call, store, wait)
        begun.wait()
        child = Child(lambda: not own & sockets(), saved(store, "child"))
        went_well = [child.succeeds(), child.succeeds()]
        goes_on.set()
        assert call.result() == 1
    assert went_well == [True, True]
    child.end()
    assert sockets() - before == own
    store.close()
    engine.dispose()


def test_a_child_that_is_forked_in_a_call_ends_it_on_a_connection_of_its_own(on_postgres: Place) -> None:
    store = on_postgres.open(SqlResumeStore)
    store.load("a")
    parent = os.getpid()
    seen: list[int] = []

    def fork(transaction: Any) -> int:
        if not seen:
            seen.append(int(transaction.execute_text("SELECT pg_backend_pid()").value))
            seen.append(os.fork())
        return int(transaction.execute_text("SELECT pg_backend_pid()").value)

    own = -1
    try:
        own = store._database._retry_once(lambda: in_call(store, fork))
    finally:
        if os.getpid() != parent:
            os._exit(own in (-1, seen[0]))
    backend, child = seen
    assert own == backend
    assert os.waitpid(child, 0)[1] == 0
    store.close()


def test_the_session_of_a_parent_ends_with_it_although_its_child_runs_on(on_postgres: Place) -> None:
    store = Place(f"{on_postgres.url}?application_name={on_postgres.prefix}", on_postgres.prefix).open(SqlResumeStore)

    def bear() -> None:
        store.save(samples.resume_point("a"))
        if os.fork() == 0:
            os.close(ended)
            os.read(alive, 1)
            os.kill(os.getpid(), signal.SIGKILL)

    alive, ended = os.pipe()
    parent = Child(bear)
    assert parent.succeeds()
    parent.end()
    engine = on_postgres.engine(isolation_level="AUTOCOMMIT")
    with engine.connect() as onlooker:
        while onlooker.execute(_SESSIONS, {"name": on_postgres.prefix}).scalar_one():
            pass  # the server needs a moment to notice
    os.close(ended)
    os.close(alive)
    engine.dispose()


def test_the_users_engine_crosses_a_fork_too(place: Place) -> None:
    engine = place.engine()
    store = SqlResumeStore(engine, prefix=place.prefix)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), saved(store, "second"))
    assert child.succeeds()
    engine.dispose()
    assert child.succeeds()
    child.end()
    assert store.load("second") is not None
    engine.dispose()


def test_a_fork_waits_for_the_calls_of_other_threads(on_sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    other = sqlite3.connect(on_sqlite.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    begins, forks = threading.Event(), threading.Event()
    configure = store._database.dialect.configure

    def noted(transaction: Any) -> None:
        begins.set()
        configure(transaction)

    monkeypatch.setattr(store._database.dialect, "configure", noted)

    def let_go() -> None:
        forks.wait()
        other.execute("ROLLBACK")

    threads = [threading.Thread(target=saved(store, "thread")), threading.Thread(target=let_go)]
    for thread in threads:
        thread.start()
    begins.wait()
    _about_to_fork.append(forks.set)
    try:
        child = Child(lambda: not forks_module._calls, lambda: store.load("thread") is not None)
    finally:
        _about_to_fork.clear()
    assert child.succeeds()
    assert child.succeeds()
    child.end()
    for thread in threads:
        thread.join()
    other.close()
    store.close()


def test_a_call_that_begins_while_a_fork_waits_waits_for_the_fork(on_sqlite: Place) -> None:
    """Otherwise threads that make one call after another would never let a fork happen."""
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    has_begun, goes_on = threading.Event(), threading.Event()
    order: list[str] = []

    def stay(_: Any) -> None:
        has_begun.set()
        goes_on.wait()
        order.append("a call that was in progress")

    def fork() -> None:
        child = Child(lambda: store.load("before") is not None)
        order.append("the fork")
        assert child.succeeds()
        child.end()

    def newcomer(_: Any) -> None:
        order.append("a call that began later")

    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(in_call, store, stay)]
        has_begun.wait()
        calls.append(threads.submit(fork))
        while not forks_module._forking:
            pass
        calls.append(threads.submit(in_call, store, newcomer))
        while not forks_module._waiting:
            pass
        goes_on.set()
        for call in calls:
            call.result()
    assert order[0] == "a call that was in progress"
    assert sorted(order[1:]) == ["a call that began later", "the fork"]
    assert (forks_module._forking, forks_module._waiting) == ({}, {})
    store.close()


def test_a_thread_in_a_call_may_make_another_while_a_fork_waits(on_sqlite: Place) -> None:
    """The fork waits for the first one, which waits for the second."""
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("before"))

    def nested(_: Any) -> bool:
        forking = threads.submit(lambda: Child(lambda: True))
        while not forks_module._forking:
            pass
        children.append(forking)
        return store.load("before") is not None

    children: list[Any] = []
    with ThreadPoolExecutor(1) as threads:
        assert in_call(store, nested)
        child = children[0].result()
    assert child.succeeds()
    child.end()
    store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_in_the_middle_of_a_fork_leaves_nothing_locked(
    on_sqlite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter ignores it, and forks."""
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("before"))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._database._connections, "disconnect", interrupted)
        child = Child(lambda: True)
    assert child.succeeds()
    child.end()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(store.save, samples.resume_point("after")).result()
    assert store.load("after") is not None
    store.close()


def test_a_fork_in_the_middle_of_a_call_does_not_deadlock(on_sqlite: Place) -> None:
    store = on_sqlite.open(SqlResumeStore)
    children: list[Child] = []
    in_call(store, lambda _: children.append(Child(lambda: True)), writes=True)
    store.save(samples.resume_point("a"))
    assert [child.succeeds() for child in children] == [True]
    children[0].end()
    assert store.load("a") is not None
    store.close()


def test_a_child_has_free_slots_although_its_parent_uses_all(on_postgres: Place) -> None:
    store = on_postgres.open(SqlResumeStore)
    store.save(samples.resume_point("a"))
    begun, goes_on = threading.Semaphore(0), threading.Event()

    def wait(_: Any) -> None:
        begun.release()
        goes_on.wait()

    with ThreadPoolExecutor(32) as threads:
        for _ in range(32):
            threads.submit(in_call, store, wait)
        for _ in range(32):
            begun.acquire()
        child = Child(lambda: store.load("a") is not None)
        went_well = child.succeeds()
        goes_on.set()
    assert went_well
    child.end()
    store.close()


@pytest.mark.parametrize("time", range(3))
def test_a_child_of_a_child_works_too(place: Place, time: int) -> None:
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))

    def again() -> bool:
        store.save(samples.resume_point("child"))
        grandchild = Child(saved(store, "grandchild"))
        went_well = grandchild.succeeds()
        grandchild.end()
        return went_well

    child = Child(again)
    assert child.succeeds(), time
    child.end()
    assert all(store.load(run) for run in ("before", "child", "grandchild"))
    store.close()
