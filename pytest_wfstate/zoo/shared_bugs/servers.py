"""Stores on a server that lose changes in transit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pytest_wfstate.stores.redis.base import RedisStore
from pytest_wfstate.stores.redis.client import Argument, RedisClient
from pytest_wfstate.stores.redis.lua_script import ChangeScript, Script
from pytest_wfstate.zoo.base import shared_bug_on_redis


@shared_bug_on_redis(
    effects="cut.save cut.mark cut.delete",
    paused="cut.save cut.claim cut.complete cut.recover cut.remove cut.fenced-complete cut.renew cut.takeover",
    resume="cut.save cut.delete",
    runs="cut.create cut.update cut.delete cut.upsert",
    snapshots="cut.save cut.fork",
)
class TakesSentForDone(RedisStore):
    """A change that got no response counts as made, because it was sent.

    If the connection broke first, or the server died, the acknowledged change is lost.
    """

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix)
        self._client = _Optimist(url)


@shared_bug_on_redis(paused="cut.claim cut.complete cut.recover cut.takeover cut.fenced-complete cut.renew")
class SendsAgain(RedisStore):
    """A change that got no response is sent again, as if it had never arrived.

    It had arrived: the second claim finds nothing to claim, and no worker has the run.
    """

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix)
        self._client = _Forgetful(url)


@shared_bug_on_redis(
    server="_wfstate_volatile_redis",
    effects="server.killed",
    paused="server.killed",
    resume="server.killed",
    runs="server.killed",
    snapshots="server.killed",
)
class KeptInMemory(RedisStore):
    """The server runs as a cache that stores nothing on disk, and the warning is silenced.

    Everything acknowledged is lost when the server restarts.
    """

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix)
        self._client = _Unwarned(url)


class _Unwarned(RedisClient):
    def _warn_once(self) -> None:
        pass


class _Forgetful(RedisClient):
    """A client that does not recognize its own receipts."""

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], client: Any = None) -> Any:
        known, *others = keys
        unknown = f"{known}:{uuid.uuid4().hex}" if isinstance(script, ChangeScript) else known
        return super()._run(script, [unknown, *others], args, client)


class _Optimist(RedisClient):
    """A client that takes a lost connection for success."""

    def _retry_once(self, call: Callable[[], Any], key: str, *, changes: bool) -> Any:
        try:
            return call() if changes else super()._retry_once(call, key, changes=changes)
        except self._lost:
            return b"1"
