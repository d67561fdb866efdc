"""The client of a store: it runs scripts on the server, and resends a call whose connection was lost."""

from __future__ import annotations

import importlib.util
import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pytest_wfstate.errors import CorruptRecord, LostConnection, MissingExtra
from pytest_wfstate.stores.redis.lua_script import NOW, REMEMBERED, TOO_LATE, ChangeScript, Script
from pytest_wfstate.stores.redis.settings import warn_once

T = TypeVar("T")
Argument = str | bytes | int

_TIMEOUT = 5.0
"""Seconds that the store's own client waits for a connection or an answer. Without it, a server whose machine is gone
would block the client for ever."""

_SLACK = 1.0
"""Seconds by which the clocks of client and server may drift apart while a receipt is kept."""

# It must not stop while the machine sleeps, and frozen clocks in tests leave it alone.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RedisClient:
    """The store's own connection pool, made from a URL, or a client that the user passed in.

    It is safe to use in threads and in forked processes: redis-py gives each its own connections.
    """

    def __init__(self, url_or_client: Any) -> None:
        self._package = package = _redis()
        self._lost = (package.ConnectionError, package.TimeoutError)
        self._is_own = isinstance(url_or_client, str)
        self._redis: Any = _own_client(package, url_or_client) if self._is_own else url_or_client
        if not isinstance(self._redis, (package.Redis, package.RedisCluster)):
            raise TypeError(
                f"{url_or_client!r} is a {type(url_or_client).__name__}, neither a URL nor a blocking Redis client. "
                "Pass the URL of a server, a redis.Redis or a redis.RedisCluster, not one of redis.asyncio."
            )

    def query(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes nothing, and return its result, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds a value of the wrong type.
        """
        return self._retry_once(lambda: self._run(script, keys, args), keys[0], changes=False)

    def change(self, change: ChangeScript, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes something exactly once, and return its result, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds a value of the wrong type.
        """
        begin, attempts = _seconds(), itertools.count()

        def call() -> Any:
            deadline = self._deadline(keys[0], begin) if next(attempts) else ""
            return self._run(change, keys, [*args, deadline])

        return self._retry_once(call, keys[1], changes=True)

    def get(self, *command: str) -> Any:
        """Run a command that only reads; its second word is the key."""
        return self._retry_once(lambda: self._send(*command), command[1], changes=False)

    def sent_nothing(self, error: BaseException) -> bool:
        """Whether a call that raised `error` is known not to have been sent."""
        return self._is_unsent(error.__cause__ or error)

    def close(self) -> None:
        """Close the connections, unless the client is the user's."""
        if self._is_own:
            self._redis.close()

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        rest = [len(keys), *keys, *args]
        try:
            return self._send("EVALSHA", script.sha, *rest)
        except self._package.exceptions.NoScriptError:  # a server forgets scripts when it starts
            return self._send("EVAL", script.text, *rest)

    def _send(self, command: str, *args: Argument) -> Any:
        # Bytes in both directions, whatever the user's client encodes and decodes: a record that is not text is then
        # reported as corrupt, not as a decoding error.
        encoded = [arg.encode() if isinstance(arg, str) else arg for arg in args]
        return self._redis.execute_command(command, *encoded, NEVER_DECODE=True)

    def _deadline(self, key: str, begin: float) -> int:
        """Return the server time until which it still has the receipt of a call sent since `begin`."""
        now: int = self._run(NOW, [key], [])
        return now + int(1000 * (REMEMBERED - _SLACK - (_seconds() - begin)))

    def _retry_once(self, call: Callable[[], T], key: str, *, changes: bool) -> T:
        """Make a call, and retry it once if the connection was lost."""
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
                    raise CorruptRecord(f"Redis key {key!r}", f"the server reports {error}") from error
                if TOO_LATE not in str(error):
                    raise
                break
        # Of two errors, report the one whose call may have been sent.
        cause = next((error for error in lost if not self._is_unsent(error)), lost[-1])
        raise self._lost_in(key, cause, changes=changes) from cause

    def _is_unsent(self, error: BaseException) -> bool:
        """Whether a call failed because it got no connection, from the pool or to the server.

        A cluster client may have sent it to another node before.
        """
        frames = traceback.walk_tb(error.__traceback__)
        not_connected = any(frame.f_code.co_name == "get_connection" for frame, _ in frames)
        return not_connected and not isinstance(self._redis, self._package.RedisCluster)

    def _lost_in(self, key: str, error: Exception, *, changes: bool) -> LostConnection:
        problem = f"the connection to the Redis server{self._place()} was lost, and a retry failed"
        advice = "The call only reads. Retry when the server can be reached."
        if self._is_unsent(error):
            problem = f"cannot connect to the Redis server{self._place()}"
            advice = "Nothing was changed. Retry when the server can be reached and the client has a free connection."
        elif changes:
            advice = "The change may or may not have been made. Check whether it is there before you retry."
        reason = str(error).rstrip(".")
        return LostConnection(f"{problem}: {reason}. The call was on key {key!r}. {advice}")

    def _warn_once(self) -> None:
        warn_once(self._package, self._redis, self._place())

    def _place(self) -> str:
        known = getattr(getattr(self._redis, "connection_pool", None), "connection_kwargs", {})
        place = known.get("path") or (known.get("host") and f"{known['host']}:{known.get('port')}")
        return f" at {place}" if place else ""  # a cluster has many servers, and Sentinel looks the server up


def _redis() -> Any:
    try:
        import redis
    except ImportError as error:
        raise MissingExtra(
            "Redis stores need the package redis, which is not installed: Python found no package of that name. "
            "Install it with: pip install 'pytest-wfstate[redis]'"
        ) from error
    return redis


def _own_client(package: Any, url: str) -> Any:
    """Make a client that neither retries by itself nor announces its name and version first.

    Each thread that is in a call has a connection, however many there are. Settings in the URL take precedence.
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
