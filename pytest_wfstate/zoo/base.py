"""An animal: a store that is known to be bad, and in what way."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_wfstate.stores import redis
from pytest_wfstate.zoo.json_stores import STORES

S = TypeVar("S", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class Animal:
    """A store with a bug, its story, and the clauses that it breaks."""

    name: str
    contract: str
    story: str
    breaks: tuple[str, ...]
    """All clauses that it breaks, by id."""
    open: Callable[..., Any]
    """Opens it at its home, a folder; or on a server, of which it takes the URL and a `prefix` of its own."""
    server: str | None = None
    """The fixture that gives the server it is on."""


ANIMALS: list[Animal] = []


_ON_REDIS: dict[str, type] = {
    "effects": redis.RedisEffectStore,
    "paused": redis.RedisPausedStore,
    "resume": redis.RedisResumeStore,
    "snapshots": redis.RedisSnapshotStore,
    "runs": redis.RedisRunStore,
}


def animal(contract: str, *breaks: str, server: str | None = None) -> Callable[[S], S]:
    """Take a store class into the zoo: its docstring is its story.

    `breaks` names the clauses without the contract, one or several in a string: `"claim.one-winner claim.takes"`.
    """

    def take(store: S) -> S:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", store.__name__).lower()
        story = " ".join((store.__doc__ or "").split())
        ANIMALS.append(Animal(f"{contract}.{name}", contract, story, _ids(contract, breaks), store, server))
        return store

    return take


def trait(**breaks: str) -> Callable[[S], S]:
    """Take a bug into the zoo that stores of several contracts can have: each contract that is named gets an animal.

    The class is mixed into the store of the contract; its docstring is the story of them all.
    """
    return _mixed_into(STORES, breaks)


def trait_on_redis(server: str = "redis_server", **breaks: str) -> Callable[[S], S]:
    """Take a bug into the zoo that stores on a Redis server can have."""
    return _mixed_into(_ON_REDIS, breaks, server)


def _mixed_into(stores: Mapping[str, type], breaks: Mapping[str, str], server: str | None = None) -> Callable[[S], S]:
    def take(bug: S) -> S:
        for contract, some in breaks.items():
            mixed = type(bug.__name__, (bug, stores[contract]), {"__doc__": bug.__doc__})
            animal(contract, some, server=server)(mixed)
        return bug

    return take


def _ids(contract: str, breaks: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{contract}.{one}" for some in breaks for one in some.split())
