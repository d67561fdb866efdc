"""The clauses about servers have teeth: no store passes because nothing was cut, or cut at the wrong time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_wfstate import LostConnection, RedisResumeStore, ResumePoint, Server, SqlPausedStore
from pytest_wfstate.faults.race.report import RaceBug
from pytest_wfstate.labs.race import Race
from pytest_wfstate.suites import PausedSuite, ResumeSuite
from tests.unit.suites.only import only


class RepeatsBlindly(SqlPausedStore):
    """Retries a change whose commit was lost, though it may have happened: the second claim finds nothing."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix=prefix)
        write = self._database.write

        def again(*args: Any, **kwargs: Any) -> Any:
            try:
                return write(*args, **kwargs)
            except LostConnection:
                return write(*args, **kwargs)

        self._database.__dict__["write"] = again


@only("test_cut_claim", "test_cut_recover")
class TestCutAfterTheAnswer(PausedSuite):
    """PostgreSQL's goodbye has no answer: it is not the last message to cut after."""

    medium = "server"
    server = "postgres_server"
    known_failures: ClassVar = {
        "paused.cut.claim": "it claims again, and gets nothing",
        "paused.cut.recover": "it recovers again, and finds nothing",
    }

    def open(self, home: Path) -> Any:
        return RepeatsBlindly(self.url, prefix=home.name)


class Own:
    """A record type of the store."""

    def __init__(self, text: str) -> None:
        self.text = text


class OwnRecords:
    """A store that accepts only its own records, and closes by another name."""

    def __init__(self, url: str, prefix: str) -> None:
        self._store = RedisResumeStore(url, prefix=prefix)

    def save(self, own: Own) -> None:
        if not isinstance(own, Own):
            raise RuntimeError(f"not my record: {own}")
        self._store.save(ResumePoint.from_json(own.text, "a test"))

    def load(self, run_id: str) -> Own | None:
        point = self._store.load(run_id)
        return None if point is None else Own(point.to_json())

    def shut_down(self) -> None:
        self._store.close()


@only("test_server_killed")
class TestAdapted(ResumeSuite):
    """A storm uses the adapters of the suite."""

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
    """If every call of the storm failed, it would not notice that everything is lost."""

    server = "_wfstate_volatile_redis"
    known_failures: ClassVar = {"resume.server.killed": "the server keeps nothing"}
    pytestmark = pytest.mark.filterwarnings("ignore::pytest_wfstate.NotDurable")


class RefusesAll(RedisResumeStore):
    """Fails with or without a server."""

    def save(self, point: ResumePoint) -> None:
        raise RuntimeError(f"not {point.run_id}")


def test_an_error_is_not_blamed_on_a_running_server(redis_server: Server) -> None:
    text = r"A call failed although its worker was not killed and its server was up:\n.* save\("

    def open_store(home: Path) -> RefusesAll:
        return RefusesAll(redis_server.url, home.name)

    with pytest.raises(RaceBug, match=text):
        Race().storm(open_store, "resume", medium="server", server=redis_server)


class ConnectsOnce(RedisResumeStore):
    """Never reconnects."""

    is_lost = False

    def load(self, run_id: str) -> ResumePoint | None:
        point: ResumePoint | None = self._try(lambda: super(ConnectsOnce, self).load(run_id))
        return point

    def save(self, point: ResumePoint) -> None:
        self._try(lambda: super(ConnectsOnce, self).save(point))

    def _try(self, call: Callable[[], Any]) -> Any:
        if self.is_lost:
            raise ConnectionError("the connection is lost")
        try:
            return call()
        except ConnectionError:
            self.is_lost = True
            raise


@only("test_server_killed")
class TestConnectsOnce(ResumeSuite):
    """A handle has to reconnect, and the suite does not wait forever until it does."""

    medium = "server"
    server = "redis_server"
    known_failures: ClassVar = {"resume.server.killed": "load('server') still fails"}

    @pytest.fixture(autouse=True)
    def _be_impatient(self, _wfstate_item: None) -> None:
        self.context.timeout = 1.0

    def open(self, home: Path) -> Any:
        return ConnectsOnce(self.url, prefix=home.name)
