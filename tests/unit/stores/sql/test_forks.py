"""Forks: parent and child go on with one handle, and neither harms the other."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from pytest_wfstate import SqlPausedStore, SqlResumeStore, samples
from pytest_wfstate.stores.sql import _forks
from tests.unit.stores.sql.places import Place

_PID = text("SELECT pg_backend_pid()")
_about_to_fork: list[Callable[[], None]] = []
os.register_at_fork(before=lambda: [call() for call in _about_to_fork])  # runs before that of the stores


class Child:
    """A forked process that does one thing after another, when it is told to, and then dies by SIGKILL."""

    def __init__(self, *things: Callable[[], object]) -> None:
        told, self._tell = os.pipe()
        self._said, say = os.pipe()
        self.pid = os.fork()
        for end in (told, say) if self.pid else (self._tell, self._said):
            os.close(end)  # so that a child ends with its parent
        if self.pid:
            return
        try:
            for thing in things:
                if not os.read(told, 1):
                    break
                os.write(say, b"y" if thing() in (None, True) else b"n")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def goes_on(self) -> bool:
        """Have it do the next thing, and tell whether that went well."""
        os.write(self._tell, b"x")
        return os.read(self._said, 1) == b"y"

    def end(self) -> None:
        os.waitpid(self.pid, 0)


def saved(store: Any, run: str) -> Callable[[], object]:
    return lambda: store.save(samples.resume_point(run))


def test_what_a_child_saves_outlives_its_parents_handle(place: Place) -> None:
    """SQLite would have the parent remove the log that the child goes on writing to."""
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), saved(store, "second"))
    assert child.goes_on()
    store.close()
    assert child.goes_on()
    child.end()

    with place.open(SqlResumeStore) as again:
        assert [run for run in ("before", "first", "second") if again.load(run)] == ["before", "first", "second"]


def test_what_a_parent_saves_outlives_its_child(place: Place) -> None:
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), store.close, saved(store, "second"))
    assert child.goes_on()
    store.save(samples.resume_point("parent-1"))
    assert child.goes_on()
    store.save(samples.resume_point("parent-2"))
    assert child.goes_on()
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
    assert child.goes_on()
    assert store.claim("a") is None
    store.complete("a")  # as one who never claimed it: a worker that was restarted
    assert store.recover_orphaned() == 0
    assert child.goes_on()
    child.end()
    store.close()


def test_a_child_connects_to_postgres_anew(on_postgres: Place) -> None:
    store = on_postgres.open(SqlResumeStore)

    def backend() -> int:
        return int(store._database.read(lambda transaction: transaction.say("SELECT pg_backend_pid()").value))

    own = backend()
    child = Child(lambda: backend() != own)
    assert child.goes_on()
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
    assert child.goes_on()
    child.end()
    assert backend() == own
    engine.dispose()


def test_an_engine_of_the_users_crosses_a_fork_too(place: Place) -> None:
    engine = place.engine()
    store = SqlResumeStore(engine, prefix=place.prefix)
    store.save(samples.resume_point("before"))
    child = Child(saved(store, "first"), saved(store, "second"))
    assert child.goes_on()
    engine.dispose()
    assert child.goes_on()
    child.end()
    assert store.load("second") is not None
    engine.dispose()


def test_a_fork_waits_for_the_calls_of_other_threads(on_sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = on_sqlite.open(SqlResumeStore)
    store.save(samples.resume_point("before"))
    other = sqlite3.connect(on_sqlite.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    begins, forks = threading.Event(), threading.Event()
    take = store._database.dialect.take

    def noted(transaction: Any) -> None:
        begins.set()
        take(transaction)

    monkeypatch.setattr(store._database.dialect, "take", noted)

    def let_go() -> None:
        forks.wait()
        other.execute("ROLLBACK")

    threads = [threading.Thread(target=saved(store, "thread")), threading.Thread(target=let_go)]
    for thread in threads:
        thread.start()
    begins.wait()
    _about_to_fork.append(forks.set)
    try:
        child = Child(lambda: not _forks._callers, lambda: store.load("thread") is not None)
    finally:
        _about_to_fork.clear()
    assert child.goes_on()
    assert child.goes_on()
    child.end()
    for thread in threads:
        thread.join()
    other.close()
    store.close()


def test_who_forks_in_the_middle_of_a_call_does_not_wait_for_itself(on_sqlite: Place) -> None:
    store = on_sqlite.open(SqlResumeStore)
    children: list[Child] = []
    store._database.write(lambda _: children.append(Child(lambda: True)))
    store.save(samples.resume_point("a"))
    assert [child.goes_on() for child in children] == [True]
    children[0].end()
    assert store.load("a") is not None
    store.close()


@pytest.mark.parametrize("time", range(3))
def test_a_child_of_a_child_works_too(place: Place, time: int) -> None:
    store = place.open(SqlResumeStore)
    store.save(samples.resume_point("before"))

    def again() -> bool:
        store.save(samples.resume_point("child"))
        grandchild = Child(saved(store, "grandchild"))
        went_well = grandchild.goes_on()
        grandchild.end()
        return went_well

    child = Child(again)
    assert child.goes_on(), time
    child.end()
    assert all(store.load(run) for run in ("before", "child", "grandchild"))
    store.close()
