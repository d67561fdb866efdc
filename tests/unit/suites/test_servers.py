"""Clauses about servers see what they are for: no store passes them for having done nothing, or at the wrong time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from pytest_wfstate import LostConnection, RedisResumeStore, ResumePoint, Server, SqlPausedStore
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.race import Race
from pytest_wfstate.suites import PausedSuite, ResumeSuite
from pytest_wfstate.suites.clauses import clauses

S = TypeVar("S", bound=type)


def only(*tests: str) -> Callable[[S], S]:
    """Leave a suite with some of its clauses."""

    def leave(suite: S) -> S:
        for name in [*(one.test for one in clauses(suite)), "test_suite_is_whole"]:
            if name not in tests:
                setattr(suite, name, None)
        return suite

    return leave


class RepeatsBlindly(SqlPausedStore):
    """Makes a change again if its commit was lost, though it may have been made: who claims again finds nothing."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix=prefix)
        change = self._database._change_once

        def again(*args: Any) -> Any:
            try:
                return change(*args)
            except LostConnection:
                return change(*args)

        self._database.__dict__["_change_once"] = again


@only("test_cut_claim", "test_cut_recover")
class TestCutAfterTheAnswer(PausedSuite):
    """PostgreSQL says farewell, and waits for no answer: that is not the last message of a scenario."""

    medium = "server"
    server = "postgres_server"
    known_failures: ClassVar = {
        "paused.cut.claim": "it claims once more, and gets nothing",
        "paused.cut.recover": "it counts once more, and finds nothing",
    }

    def open(self, home: Path) -> Any:
        return RepeatsBlindly(self.url, prefix=home.name)


class Own:
    """A record of a store's own."""

    def __init__(self, text: str) -> None:
        self.text = text


class OwnRecords:
    """A store that takes no other records, and has its own word for close."""

    def __init__(self, url: str, prefix: str) -> None:
        self._store = RedisResumeStore(url, prefix=prefix)

    def save(self, own: Own) -> None:
        if not isinstance(own, Own):
            raise RuntimeError(f"no record of mine: {own}")
        self._store.save(ResumePoint.from_json(own.text, "a test"))

    def load(self, run_id: str) -> Own | None:
        found = self._store.load(run_id)
        return None if found is None else Own(found.to_json())

    def shut_down(self) -> None:
        self._store.close()


@only("test_server_killed")
class TestAdapted(ResumeSuite):
    """A storm goes through what adapts the store."""

    medium = "server"
    server = "redis_server"

    def open(self, home: Path) -> Any:
        return OwnRecords(self.url, prefix=home.name)

    def close(self, store: Any) -> None:
        store.shut_down()

    def encode(self, record: Any) -> Own:
        return Own(record.to_json())

    def decode(self, value: Any) -> Any:
        return ResumePoint.from_json(value.text, "a test")


class TestAdaptedOnVolatile(TestAdapted):
    """It would not notice that everything is lost, if every call of the storm failed."""

    server = "_wfstate_volatile_redis"
    known_failures: ClassVar = {"resume.server.killed": "the server keeps nothing"}
    pytestmark = pytest.mark.filterwarnings("ignore::pytest_wfstate.NotDurable")


class RefusesAll(RedisResumeStore):
    """Fails whether there is a server or not."""

    def save(self, point: ResumePoint) -> None:
        raise RuntimeError(f"not {point.run_id}")


def test_an_error_is_not_put_down_to_a_server_that_was_there(redis_server: Server) -> None:
    told = r"A call failed although its worker was not killed and its server was up:\n.* save\("

    def open_store(home: Path) -> RefusesAll:
        return RefusesAll(redis_server.url, home.name)

    with pytest.raises(RaceBug, match=told):
        Race().storm(open_store, "resume", medium="server", server=redis_server)


class ConnectsOnce(RedisResumeStore):
    """Never gets over the loss of its connection."""

    is_lost = False

    def load(self, run_id: str) -> ResumePoint | None:
        found: ResumePoint | None = self._tried(lambda: super(ConnectsOnce, self).load(run_id))
        return found

    def save(self, point: ResumePoint) -> None:
        self._tried(lambda: super(ConnectsOnce, self).save(point))

    def _tried(self, call: Callable[[], Any]) -> Any:
        if self.is_lost:
            raise ConnectionError("lost for ever")
        try:
            return call()
        except ConnectionError:
            self.is_lost = True
            raise


@only("test_server_killed")
class TestConnectsOnce(ResumeSuite):
    """A handle has to connect anew, and nobody waits for ever until it does."""

    medium = "server"
    server = "redis_server"
    known_failures: ClassVar = {"resume.server.killed": "load('server') still fails"}
    _timeout = 1.0

    def open(self, home: Path) -> Any:
        return ConnectsOnce(self.url, prefix=home.name)
