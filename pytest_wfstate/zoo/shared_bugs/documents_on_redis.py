"""Bugs of stores whose documents are on a Redis server.

Our own stores of these contracts are in memory and in files. Those of others are often on a server, and their clauses
are proved here.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Generator
from typing import Any

from pytest_wfstate.stores.file.folder import Folder
from pytest_wfstate.stores.file.scope import scope
from pytest_wfstate.zoo.base import shared_bug_on_redis
from pytest_wfstate.zoo.correct_stores import JsonFiles

_LOCKED_MS = 500  # at most: a client that dies leaves its lock


class RedisFolder(Folder):
    """A folder whose files are the keys of a server, locked by a key that expires."""

    def __init__(self, client: Any, prefix: str) -> None:
        super().__init__(prefix, "process")
        self._client = client
        self._prefix = f"{prefix}:"
        self._lock = f"{prefix}-lock"

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._client.get(self._prefix + name)
        return data

    def names(self) -> list[str]:
        return [key.decode().removeprefix(self._prefix) for key in self._client.keys(f"{self._prefix}*")]

    @scope
    def exclusive(self, id_: str | None = None) -> Generator[Any]:  # noqa: ARG002 - no other program's files
        """Hold the key of the lock."""
        own = uuid.uuid4().hex
        while not self._client.set(self._lock, own, nx=True, px=_LOCKED_MS):
            time.sleep(0.005)
        try:
            yield LockedKeys(self, self._client, self._prefix)
        finally:
            self._client.delete(self._lock)

    @scope
    def shared(self) -> Generator[list[str]]:
        """List the keys."""
        yield self.names()


class LockedKeys:
    """The files of a folder that are keys."""

    def __init__(self, folder: RedisFolder, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self.names = folder.names

    def replace(self, name: str, data: bytes) -> None:
        self._client.set(self._prefix + name, data)

    def unlink(self, *names: str) -> None:
        self._client.delete(*(self._prefix + name for name in names))

    def sync(self) -> None:
        pass


class OnRedis(JsonFiles):
    """Documents on a server."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(prefix)
        redis = importlib.import_module("redis")
        self.folder = RedisFolder(self.client(redis, url), prefix)

    def client(self, redis: Any, url: str) -> Any:
        """Return a client."""
        return redis.Redis.from_url(url)


@shared_bug_on_redis(
    history="cut.append cut.pop cut.clear",
    queue="cut.put cut.take cut.done cut.retry cut.recover cut.takeover",
    lock="cut.acquire cut.renew cut.release",
)
class TakesSentForDone(OnRedis):
    """A change that got no response counts as made, because it was sent.

    If the connection broke first, or the server died, the acknowledged change is lost.
    """

    def client(self, redis: Any, url: str) -> Any:
        class Optimist(redis.Redis):  # type: ignore[misc]
            def execute_command(self, *args: Any, **options: Any) -> Any:
                try:
                    return super().execute_command(*args, **options)
                except redis.ConnectionError:
                    if args[0] not in ("SET", "DEL"):
                        raise
                    return True

        return Optimist.from_url(url, retry=None)


@shared_bug_on_redis(
    server="_wfstate_volatile_redis", history="server.killed", queue="server.killed", lock="server.killed"
)
class KeptInMemory(OnRedis):
    """The server runs as a cache that stores nothing on disk.

    Everything acknowledged is lost when the server restarts.
    """
