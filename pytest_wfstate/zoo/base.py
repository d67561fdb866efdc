"""A known-bad store: a store class with a bug, its story, and the clauses that it breaks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pytest_wfstate.stores import redis
from pytest_wfstate.zoo.correct_generic_stores import CORRECT_GENERIC_STORES
from pytest_wfstate.zoo.correct_stores import CORRECT_STORES

S = TypeVar("S", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class KnownBadStore:
    """A store with a bug, its story, and the clauses that it breaks."""

    name: str
    contract: str
    story: str
    breaks: tuple[str, ...]
    """The ids of all clauses that it breaks."""
    open: Callable[..., Any]
    """Opens it in its home, a folder; or on a server, given the server's URL and a `prefix` of its own."""
    server: str | None = None
    """The fixture of the server that it needs, if any."""


KNOWN_BAD_STORES: list[KnownBadStore] = []


_ON_REDIS: dict[str, type] = {
    "effects": redis.RedisEffectStore,
    "paused": redis.RedisPausedStore,
    "resume": redis.RedisResumeStore,
    "snapshots": redis.RedisSnapshotStore,
    "runs": redis.RedisRunStore,
}


def known_bad(contract: str, *breaks: str, server: str | None = None) -> Callable[[S], S]:
    """Register a store class as known to be bad; its docstring is its story.

    `breaks` names clauses without their contract, one or several in a string: `"claim.one-winner claim.takes"`.
    """

    def register(store: S) -> S:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", store.__name__).lower()
        story = " ".join((store.__doc__ or "").split())
        clause_ids = tuple(f"{contract}.{clause}" for clause in " ".join(breaks).split())
        KNOWN_BAD_STORES.append(KnownBadStore(f"{contract}.{name}", contract, story, clause_ids, store, server))
        return store

    return register


def shared_bug(**breaks: str) -> Callable[[S], S]:
    """Register a bug that stores of several contracts share: a known-bad store for each contract named.

    The class is mixed into the correct store of each contract; its docstring is the story of them all.
    """
    return _mixed_into({**CORRECT_STORES, **CORRECT_GENERIC_STORES}, breaks)


def shared_bug_on_redis(server: str = "redis_server", **breaks: str) -> Callable[[S], S]:
    """Register a bug that stores on a Redis server share: our own, or those whose documents are kept there."""
    return _mixed_into({**_ON_REDIS, **CORRECT_GENERIC_STORES}, breaks, server)


def _mixed_into(stores: Mapping[str, type], breaks: Mapping[str, str], server: str | None = None) -> Callable[[S], S]:
    def register(bug: S) -> S:
        for contract, clauses in breaks.items():
            store = type(bug.__name__, (bug, stores[contract]), {"__doc__": bug.__doc__})
            known_bad(contract, clauses, server=server)(store)
        return bug

    return register
