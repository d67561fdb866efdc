"""The Redis stores keep every promise of their contracts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis

from pytest_wfstate import (
    RedisEffectStore,
    RedisPausedStore,
    RedisResumeStore,
    RedisRunStore,
    RedisSnapshotStore,
    Server,
    as_sync,
)
from pytest_wfstate.suites import EffectSuite, PausedSuite, ResumeSuite, RunSuite, SnapshotSuite


class OnServer:
    """What the suites of all five share: a server, and a way to damage a record on it."""

    server: ClassVar[str | None] = "redis_server"
    url: str
    client: Any

    @pytest.fixture(autouse=True)
    def _connect(self, redis_server: Server) -> Iterator[None]:
        with redis.Redis.from_url(redis_server.url) as self.client:
            yield


class TestEffects(OnServer, EffectSuite):
    medium = "server"

    def open(self, home: Path) -> Any:
        return as_sync(RedisEffectStore(self.url, prefix=home.name))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002 - the name that the contracts use
        self.client.hset(f"{home.name}:effects:{{{id}}}", "checkpoint", '{"task_')


class TestPaused(OnServer, PausedSuite):
    medium = "server"

    def open(self, home: Path) -> RedisPausedStore:
        return RedisPausedStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.client.hset(f"{{{home.name}:paused}}:paused", id, '{"run_')


class TestResume(OnServer, ResumeSuite):
    medium = "server"

    def open(self, home: Path) -> RedisResumeStore:
        return RedisResumeStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.client.set(f"{home.name}:resume:{{{id}}}", '{"run_')


class TestRuns(OnServer, RunSuite):
    medium = "server"

    def open(self, home: Path) -> Any:
        return as_sync(RedisRunStore(self.url, prefix=home.name))

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        self.client.set(f"{home.name}:runs:{{{id}}}", '{"run_')


class TestSnapshots(OnServer, SnapshotSuite):
    medium = "server"

    def open(self, home: Path) -> RedisSnapshotStore:
        return RedisSnapshotStore(self.url, prefix=home.name)

    def corrupt(self, home: Path, id: str) -> None:  # noqa: A002
        for part, damage in (("", '{"key'), (":times", "noon")):
            self.client.hset(f"{home.name}:snapshots:{{wf:{id}}}{part}", f"{2:020}", damage)
