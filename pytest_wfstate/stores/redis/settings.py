"""The settings of a server that decide whether it keeps what it acknowledges."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

_ASKED: set[str] = set()
"""Addresses of servers whose settings were checked."""

_ASKED_CLIENTS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Clients of a cluster or of Sentinel, which have no single address, whose servers were checked."""

_RECORDS = "records that this store has acknowledged would be lost"
_RECEIPTS = "without its receipts this store may make a change twice when it has to resend it"

_STORES = "pytest_wfstate.stores."


class NotDurable(UserWarning):
    """The server of a store keeps nothing on disk, or only snapshots, or evicts keys when its memory is full."""

    __module__ = "pytest_wfstate"


def warn_once(package: Any, client: Any, place: str) -> None:
    """Warn, before this process first calls a server, if it may lose what it acknowledges.

    A server that does not reveal its settings is trusted.
    """
    if place in _ASKED or client in _ASKED_CLIENTS:
        return
    try:
        problems = [text for server in _servers(package, client) for text in _problems(package, server)]
    except (package.ConnectionError, package.TimeoutError):
        return  # the call itself will fail; the settings are checked before the next one
    if place:
        _ASKED.add(place)
    else:
        _ASKED_CLIENTS.add(client)
    for text in dict.fromkeys(problems):
        warnings.warn(f"the Redis server{place} {text}", NotDurable, stacklevel=_level())


def _servers(package: Any, client: Any) -> list[Any]:
    """Return clients of the servers behind a client: for a cluster, all that accept changes."""
    if isinstance(client, package.RedisCluster):
        return [client.get_redis_connection(node) for node in client.get_primaries()]
    return [client]


def _problems(package: Any, server: Any) -> Iterator[str]:
    yield from _disk_problems(package, server)
    yield from _memory_problems(package, server)


def _disk_problems(package: Any, server: Any) -> Iterator[str]:
    problem = _settings_problem(package, server)
    if problem:
        yield f"keeps {problem}. Set appendonly to 'yes' and appendfsync to 'always'."


def _settings_problem(package: Any, server: Any) -> str | None:
    try:
        settings = {name: _setting(server, name) for name in ("appendonly", "save")}
    except package.ResponseError:
        return _reported_problem(package, server)
    if settings["appendonly"] != "no":
        return None
    what = "only snapshots on disk: when it stops, everything since the last one is lost"
    if not settings["save"]:
        what = "nothing on disk: when it stops, everything in this store is lost"
    return f"{what}. Its setting appendonly is 'no' and save is {settings['save']!r}"


def _reported_problem(package: Any, server: Any) -> str | None:
    """Ask with INFO: managed servers answer it, while they refuse CONFIG."""
    try:
        is_appended = server.info("persistence").get("aof_enabled", 1)
    except package.ResponseError:
        return None
    if is_appended:
        return None
    return "at most snapshots on disk: when it stops, everything since the last one is lost. It reports aof_enabled:0"


def _memory_problems(package: Any, server: Any) -> Iterator[str]:
    """Ask with INFO: managed servers answer it, while they refuse CONFIG."""
    try:
        info = server.info("memory")
    except package.ResponseError:
        return
    limit, policy = info.get("maxmemory", 0), info.get("maxmemory_policy", "noeviction")
    if limit and policy != "noeviction":
        harm = _RECEIPTS if policy.startswith("volatile-") else _RECORDS
        yield (
            f"evicts keys when its memory is full: {harm}. Its setting maxmemory is {limit} and maxmemory-policy is "
            f"{policy!r}. Set maxmemory-policy to 'noeviction'."
        )


def _setting(server: Any, name: str) -> str | None:
    settings: dict[Any, Any] = server.config_get(name)
    (value,) = settings.values() or (None,)
    return value.decode() if isinstance(value, bytes) else value


def _level() -> int:
    """Return the `stacklevel` at which a warning by the caller points at the line that called a store."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_STORES):
        level, frame = level + 1, frame.f_back
    return level
