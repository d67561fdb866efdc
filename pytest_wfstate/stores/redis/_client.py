"""The client of a store: it runs scripts on the server, and sends again what was lost on the way."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pytest_wfstate.errors import CorruptRecord, LostConnection, MissingExtra
from pytest_wfstate.stores.redis._script import REMEMBERED, Script

T = TypeVar("T")
Argument = str | bytes | int

_ASKED: set[str] = set()
"""Servers that were asked whether they keep anything."""


class NotDurable(UserWarning):
    """The server of a store keeps nothing on disk."""

    __module__ = "pytest_wfstate"


class Client:
    """A connection pool of the store's own, made from a URL, or a client that the user has given.

    It is safe to use in threads, and in processes that were forked: redis-py gives each its own connections.
    """

    def __init__(self, url_or_client: Any) -> None:
        package = _redis()
        self._lost = (package.ConnectionError, package.TimeoutError)
        self._refused = package.AuthenticationError
        self._no_script = package.exceptions.NoScriptError
        self._wrong = package.ResponseError
        self._is_own = isinstance(url_or_client, str)
        self._redis: Any = _own_client(package, url_or_client) if self._is_own else url_or_client
        if not isinstance(self._redis, (package.Redis, package.RedisCluster)):
            raise TypeError(
                f"{url_or_client!r} is of type {type(url_or_client).__name__}. A store is given the URL of a server, "
                "or a redis.Redis or redis.RedisCluster, which are not of redis.asyncio."
            )

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script, and give what it returns, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds what is no part of any store.
        """
        rest = [len(keys), *keys, *args]

        def call() -> Any:
            try:
                return self._send("EVALSHA", script.sha, *rest)
            except self._no_script:  # a server forgets scripts when it starts
                return self._send("EVAL", script.text, *rest)

        return self._twice(call, keys[script.changes], changes=script.changes)

    def get(self, *command: str) -> Any:
        """Run a command that only reads; the second word is its key."""
        return self._twice(lambda: self._send(*command), command[1], changes=False)

    def close(self) -> None:
        """Close the connections, unless they are the user's."""
        if self._is_own:
            self._redis.close()

    def _send(self, command: str, *args: Argument) -> Any:
        # Bytes in both directions, whatever the client of the user encodes and decodes: a record that is no text is
        # told, not stumbled over.
        plain = [one.encode() if isinstance(one, str) else one for one in args]
        return self._redis.execute_command(command, *plain, NEVER_DECODE=True)

    def _twice(self, call: Callable[[], T], key: str, *, changes: bool) -> T:
        """Make a call, and once more if the connection was lost."""
        self._warn_once()
        begin = _seconds()
        try:
            try:
                return call()
            except self._lost as error:
                if isinstance(error, self._refused) or (changes and _seconds() - begin > REMEMBERED / 2):
                    raise
                return call()
        except self._refused:
            raise
        except self._lost as error:
            raise self._lost_in(key, error, changes=changes) from error
        except self._wrong as error:
            if "WRONGTYPE" in str(error):
                raise CorruptRecord(f"Redis key {key!r}", f"the server says {error}") from error
            raise

    def _lost_in(self, key: str, error: Exception, *, changes: bool) -> LostConnection:
        came = (
            "Whether the change was made cannot be told: look before you make it again."
            if changes
            else "Nothing was to be changed: try again when the server can be reached."
        )
        return LostConnection(
            f"the connection to the Redis server{self._place()} was lost, and the call could not be repeated: "
            f"{error}. It was about key {key!r}. {came}"
        )

    def _place(self) -> str:
        known = getattr(getattr(self._redis, "connection_pool", None), "connection_kwargs", {})
        place = known.get("path") or f"{known.get('host')}:{known.get('port')}"
        return f" at {place}" if known else ""

    def _warn_once(self) -> None:
        """Say, before the first call of this process, if a server keeps nothing on disk.

        One that does not tell is believed to keep it.
        """
        place = self._place()
        if place in _ASKED:
            return
        _ASKED.add(place)
        try:
            settings = {name: self._setting(name) for name in ("appendonly", "save")}
        except (*self._lost, self._wrong):
            return
        if settings == {"appendonly": "no", "save": ""}:
            warnings.warn(
                f"the Redis server{place} keeps nothing on disk: when it ends, all is lost that this store "
                "was told. Looked at its settings appendonly, which is 'no', and save, which is ''. Set appendonly to "
                "'yes' and appendfsync to 'always'.",
                NotDurable,
                stacklevel=4,
            )

    def _setting(self, name: str) -> str | None:
        found: dict[Any, Any] = self._redis.config_get(name)
        (value,) = found.values() or (None,)
        return value.decode() if isinstance(value, bytes) else value


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
    """Make a client that does not send anything again by itself, nor its name and version before anything else."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    named = ("driver_info",) if importlib.util.find_spec("redis.driver_info") else ("lib_name", "lib_version")
    return package.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **dict.fromkeys(named))


def _seconds() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)  # which nobody freezes
