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
        found = [*_of_disk(package, client), *_of_memory(package, client)]
    except (package.ConnectionError, package.TimeoutError):
        return  # the call itself will tell; the server is asked before the next one
    if place:
        _ASKED.add(place)
    else:
        _ASKED_CLIENTS.add(client)
    for one in found:
        warnings.warn(f"the Redis server{place} {one}", NotDurable, stacklevel=_level())


def _of_disk(package: Any, client: Any) -> Iterator[str]:
    try:
        settings = {name: _setting(client, name) for name in ("appendonly", "save")}
    except package.ResponseError:
        return
    if settings == {"appendonly": "no", "save": ""}:
        yield (
            "keeps nothing on disk: when it ends, all is lost that this store was told. Looked at its settings "
            "appendonly, which is 'no', and save, which is ''. Set appendonly to 'yes' and appendfsync to 'always'."
        )


def _of_memory(package: Any, client: Any) -> Iterator[str]:
    """Ask by INFO, which managed servers answer too, while they refuse CONFIG."""
    try:
        told = client.info("memory")
    except package.ResponseError:
        return
    nodes = [one for one in told.values() if isinstance(one, dict)] or [told]  # a cluster's nodes each tell theirs
    for limit, policy in sorted({(one.get("maxmemory", 0), one.get("maxmemory_policy", "")) for one in nodes}):
        if limit and policy not in ("", "noeviction"):
            which = _RECEIPTS if policy.startswith("volatile-") else _RECORDS
            yield (
                f"throws out keys when its memory is full: {which}. Looked at its settings maxmemory, which is "
                f"{limit}, and maxmemory-policy, which is {policy!r}. Set maxmemory-policy to 'noeviction'."
            )


def _setting(client: Any, name: str) -> str | None:
    found: dict[Any, Any] = client.config_get(name)
    (value,) = found.values() or (None,)
    return value.decode() if isinstance(value, bytes) else value


def _level() -> int:
    """Give the `stacklevel` at which a warning of the caller's points at the line that called a store."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_STORES):
        level, frame = level + 1, frame.f_back
    return level
