"""The client of a store: it runs scripts on the server, and sends again what was lost on the way."""

from __future__ import annotations

import importlib.util
import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pytest_wfstate.errors import CorruptRecord, LostConnection, MissingExtra
from pytest_wfstate.stores.redis.script import NOW, REMEMBERED, TOO_LATE, ChangeScript, Script
from pytest_wfstate.stores.redis.settings import warn_once

T = TypeVar("T")
Argument = str | bytes | int

_TIMEOUT = 5.0
"""Seconds that a client of the store's own waits for a connection, and for an answer: else it would wait for ever for
a server whose machine is gone."""

_SLACK = 1.0
"""Seconds by which the clocks of client and server may come apart while a receipt is kept."""

# One that stands still while the machine sleeps would count too little. Nobody freezes it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RedisClient:
    """A connection pool of the store's own, made from a URL, or a client that the user has given.

    It is safe to use in threads, and in processes that were forked: redis-py gives each its own connections.
    """

    def __init__(self, url_or_client: Any) -> None:
        self._package = package = _redis()
        self._lost = (package.ConnectionError, package.TimeoutError)
        self._is_own = isinstance(url_or_client, str)
        self._redis: Any = _own_client(package, url_or_client) if self._is_own else url_or_client
        if not isinstance(self._redis, (package.Redis, package.RedisCluster)):
            raise TypeError(
                f"{url_or_client!r} is of type {type(url_or_client).__name__}. A store is given the URL of a server, "
                "or a redis.Redis or redis.RedisCluster, which are not of redis.asyncio."
            )

    def look(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes nothing, and give what it returns, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds what is no part of any store.
        """
        return self._retry_once(lambda: self._run(script, keys, args), keys[0], changes=False)

    def change(self, change: ChangeScript, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes something, once, and give what it returns, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds what is no part of any store.
        """
        begin, sendings = _seconds(), itertools.count()

        def call() -> Any:
            deadline = self._deadline(keys[0], begin) if next(sendings) else ""
            return self._run(change, keys, [*args, deadline])

        return self._retry_once(call, keys[1], changes=True)

    def get(self, *command: str) -> Any:
        """Run a command that only reads; the second word is its key."""
        return self._retry_once(lambda: self._send(*command), command[1], changes=False)

    def sent_nothing(self, error: BaseException) -> bool:
        """Tell whether a call, that has raised `error`, is known not to have been sent."""
        return self._is_unsent(error.__cause__ or error)

    def close(self) -> None:
        """Close the connections, unless they are the user's."""
        if self._is_own:
            self._redis.close()

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        rest = [len(keys), *keys, *args]
        try:
            return self._send("EVALSHA", script.sha, *rest)
        except self._package.exceptions.NoScriptError:  # a server forgets scripts when it starts
            return self._send("EVAL", script.text, *rest)

    def _send(self, command: str, *args: Argument) -> Any:
        # Bytes in both directions, whatever the client of the user encodes and decodes: a record that is no text is
        # told, not stumbled over.
        plain = [one.encode() if isinstance(one, str) else one for one in args]
        return self._redis.execute_command(command, *plain, NEVER_DECODE=True)

    def _deadline(self, key: str, begin: float) -> int:
        """Give the time of the server until when it has a receipt of what it was sent since `begin`."""
        now: int = self._run(NOW, [key], [])
        return now + int(1000 * (REMEMBERED - _SLACK - (_seconds() - begin)))

    def _retry_once(self, call: Callable[[], T], key: str, *, changes: bool) -> T:
        """Make a call, and once more if the connection was lost."""
        self._warn_once()
        lost: list[Exception] = []
        while len(lost) < 2:
            try:
                return call()
            except self._lost as error:
                if isinstance(error, self._package.AuthenticationError) and not lost:
                    raise
                lost.append(error)
            except self._package.ResponseError as error:
                if "WRONGTYPE" in str(error):
                    raise CorruptRecord(f"Redis key {key!r}", f"the server says {error}") from error
                if TOO_LATE not in str(error):
                    raise
                break
        # Of two, the one that may have been sent says more.
        cause = next((one for one in lost if not self._is_unsent(one)), lost[-1])
        raise self._lost_in(key, cause, changes=changes) from cause

    def _is_unsent(self, error: BaseException) -> bool:
        """Tell whether a call failed because it got no connection, from the pool or to the server.

        A client of a cluster may have sent it before, to another node.
        """
        frames = traceback.walk_tb(error.__traceback__)
        got_none = any(frame.f_code.co_name == "get_connection" for frame, _ in frames)
        return got_none and not isinstance(self._redis, self._package.RedisCluster)

    def _lost_in(self, key: str, error: Exception, *, changes: bool) -> LostConnection:
        what = f"the connection to the Redis server{self._place()} was lost, and the call could not be repeated"
        came = "Nothing was to be changed: try again when the server can be reached."
        if self._is_unsent(error):
            what = f"no connection to the Redis server{self._place()} could be had"
            came = (
                "Nothing was sent, so nothing was changed: try again when the server can be reached, and the client "
                "has a connection free."
            )
        elif changes:
            came = "Whether the change was made cannot be told: look before you make it again."
        reason = str(error).rstrip(".")
        return LostConnection(f"{what}: {reason}. It was about key {key!r}. {came}")

    def _warn_once(self) -> None:
        warn_once(self._package, self._redis, self._place())

    def _place(self) -> str:
        known = getattr(getattr(self._redis, "connection_pool", None), "connection_kwargs", {})
        place = known.get("path") or (known.get("host") and f"{known['host']}:{known.get('port')}")
        return f" at {place}" if place else ""  # a cluster has many places, and Sentinel finds out where the server is


def _redis() -> Any:
    try:
        import redis
    except ImportError as error:
        raise MissingExtra(
            "this store needs the package redis, which is not installed. It comes with an extra of pytest-wfstate: "
            "pip install 'pytest-wfstate[redis]'"
        ) from error
    return redis


def _own_client(package: Any, url: str) -> Any:
    """Make a client that does not send anything again by itself, nor its name and version before anything else.

    Each thread that is in a call has a connection, however many there are. What the URL says of all this wins.
    """
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    named = ("driver_info",) if importlib.util.find_spec("redis.driver_info") else ("lib_name", "lib_version")
    return package.Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_TIMEOUT,
        socket_connect_timeout=_TIMEOUT,
        max_connections=2**31,
        **dict.fromkeys(named),
    )


def _seconds() -> float:
    return time.clock_gettime(_CLOCK)
