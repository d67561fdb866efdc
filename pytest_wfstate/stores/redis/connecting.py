"""How a store gets its Redis client: the package, a client of the store's own, and what may be said about where it is.

A URL holds a password, so no error or representation shows one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from typing import Any

from pytest_wfstate.errors import MissingExtra, UnusableDatabase

TIMEOUT = 5.0
"""Seconds that the store's own client waits for a connection or an answer. Without it, a server whose machine is gone
would block the client for ever."""


def redis_package() -> Any:
    """Return the package redis.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import redis
    except ImportError as error:
        raise MissingExtra(
            "Redis stores need the package redis, which is not installed: Python found no package of that name. "
            "Install it with: pip install 'pytest-wfstate[redis]'"
        ) from error
    return redis


def own_client(package: Any, url: str) -> Any:
    """Make a client that neither retries by itself nor announces its name and version first.

    Each thread that is in a call has a connection, however many there are. Settings in the URL take precedence.

    Raises:
        UnusableDatabase: the URL is not one of a Redis server.
    """
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    named = ("driver_info",) if importlib.util.find_spec("redis.driver_info") else ("lib_name", "lib_version")
    client = problem = None
    # A message can quote a part of the password, which is taken for the port if it holds a slash, or for an option.
    with contextlib.suppress(ValueError, TypeError, package.RedisError):
        problem = "it is not a URL of one"
        client = _client_class(package).from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            max_connections=2**31,
            **dict.fromkeys(named),
        )
        problem = "an option after its ? is unknown or has an invalid value"
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # it does not connect yet
        problem = None
    if problem is not None:
        raise UnusableDatabase(
            f"the URL of the Redis server cannot be used: {problem}. It is not shown because it may hold a password. "
            "Write redis://user:password@host:port/0, rediss:// for TLS or unix:///path, with options of redis-py "
            "such as ?socket_timeout=20, and percent-encode special characters of the password."
        )
    return client


@functools.cache
def _client_class(package: Any) -> Any:
    """Return a client class that closes the connection of a call which a signal handler interrupts.

    It does so before the connection is in the pool again: the next call that gets it would take the reply of the
    interrupted one, which may still be on its way, for its own.
    """

    def exchange(self: Any, connection: Any, *args: Any, **options: Any) -> Any:
        try:
            return package.Redis._send_command_parse_response(self, connection, *args, **options)
        except package.RedisError:
            raise
        except BaseException:
            connection.disconnect()
            raise

    return type("InterruptibleRedis", (package.Redis,), {"_send_command_parse_response": exchange})


def check_client(package: Any, client: Any) -> None:
    """Raise `TypeError` if this is not a blocking Redis client."""
    if not isinstance(client, (package.Redis, package.RedisCluster)):
        raise TypeError(
            f"what was passed is a {type(client).__name__}, neither a URL nor a blocking Redis client. "
            "Pass the URL of a server, a redis.Redis or a redis.RedisCluster, not one of redis.asyncio."
        )


def lost_errors(package: Any, client: Any) -> tuple[type[Exception], ...]:
    """Return the errors that a client raises if it finds no server, or got no answer."""
    lost = (package.ConnectionError, package.TimeoutError)
    if not isinstance(client, package.RedisCluster):
        return lost
    errors = package.exceptions
    return (
        *lost,
        errors.RedisClusterException,  # which is not a RedisError: no node answers, or none has the slot
        errors.ClusterError,
        errors.AskError,  # on a single connection, it does not follow keys that have moved or are moving
        errors.TryAgainError,
        AttributeError,  # it was sent to a node that it does not know
        IndexError,  # no node has any slot
    )


def place_of(client: Any) -> str:
    """Return where a client connects to, for an error; empty for a cluster or Sentinel, which have many servers."""
    known = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    place = known.get("path") or (known.get("host") and f"{known['host']}:{known.get('port')}")
    return f" at {place}" if place else ""
