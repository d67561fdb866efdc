"""What a server says of itself: whether it keeps what it is told."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

_ASKED: set[str] = set()
"""Servers that have said what they keep."""

_ASKED_CLIENTS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Clients, of a cluster or of Sentinel, that do not tell which server they speak to, and have asked it."""

_RECORDS = "records that this store has acknowledged"
_RECEIPTS = "the receipts by which this store knows a change that it has to send again, which is then made twice"

_STORES = "pytest_wfstate.stores."


class NotDurable(UserWarning):
    """The server of a store keeps nothing on disk, or throws out what it was told when its memory is full."""

    __module__ = "pytest_wfstate"


def warn_once(package: Any, client: Any, place: str) -> None:
    """Say, before the first call of this process that reaches a server, if it may lose what it is told.

    One that does not tell is believed to keep it.
    """
    if place in _ASKED or client in _ASKED_CLIENTS:
        return
    try:
        found = [one for server in _servers(package, client) for one in _complaints(package, server)]
    except (package.ConnectionError, package.TimeoutError):
        return  # the call itself will tell; the server is asked before the next one
    if place:
        _ASKED.add(place)
    else:
        _ASKED_CLIENTS.add(client)
    for one in dict.fromkeys(found):
        warnings.warn(f"the Redis server{place} {one}", NotDurable, stacklevel=_level())


def _servers(package: Any, client: Any) -> list[Any]:
    """Give clients of the servers that a client speaks to: of a cluster all that take changes."""
    if isinstance(client, package.RedisCluster):
        return [client.get_redis_connection(node) for node in client.get_primaries()]
    return [client]


def _complaints(package: Any, server: Any) -> Iterator[str]:
    yield from _of_disk(package, server)
    yield from _of_memory(package, server)


def _of_disk(package: Any, server: Any) -> Iterator[str]:
    try:
        settings = {name: _setting(server, name) for name in ("appendonly", "save")}
    except package.ResponseError:
        return
    if settings == {"appendonly": "no", "save": ""}:
        yield (
            "keeps nothing on disk: when it ends, all is lost that this store was told. Looked at its settings "
            "appendonly, which is 'no', and save, which is ''. Set appendonly to 'yes' and appendfsync to 'always'."
        )


def _of_memory(package: Any, server: Any) -> Iterator[str]:
    """Ask by INFO, which managed servers answer too, while they refuse CONFIG."""
    try:
        told = server.info("memory")
    except package.ResponseError:
        return
    limit, policy = told.get("maxmemory", 0), told.get("maxmemory_policy", "noeviction")
    if limit and policy != "noeviction":
        which = _RECEIPTS if policy.startswith("volatile-") else _RECORDS
        yield (
            f"throws out keys when its memory is full: {which}. Looked at its settings maxmemory, which is {limit}, "
            f"and maxmemory-policy, which is {policy!r}. Set maxmemory-policy to 'noeviction'."
        )


def _setting(server: Any, name: str) -> str | None:
    found: dict[Any, Any] = server.config_get(name)
    (value,) = found.values() or (None,)
    return value.decode() if isinstance(value, bytes) else value


def _level() -> int:
    """Give the `stacklevel` at which a warning of the caller's points at the line that called a store."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_STORES):
        level, frame = level + 1, frame.f_back
    return level
