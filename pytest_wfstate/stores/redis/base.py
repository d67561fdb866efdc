"""What the Redis stores share: a client, a prefix for its keys, and a clock."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.records import Record
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import Store
from pytest_wfstate.stores.redis.client import Argument, RedisClient
from pytest_wfstate.stores.redis.keys import check_prefix, tagged
from pytest_wfstate.stores.redis.script import ChangeScript, Script

if TYPE_CHECKING:
    import redis

R = TypeVar("R", bound=Record)


class RedisStore(Store):
    """A store on a Redis server, given by its URL or by a client, whose keys begin with `prefix`.

    A client that was given is not closed with the store. `clock` stands in for the time of day.
    """

    contract: ClassVar[str]

    def __init__(
        self, url_or_client: str | redis.Redis | redis.RedisCluster, prefix: str = "wfstate", *, clock: Clock = now
    ) -> None:
        self._client = RedisClient(url_or_client)
        self._prefix = check_prefix(prefix)
        self._clock = clock

    def close(self) -> None:
        self._client.close()

    def _home(self, *ids: str) -> str:
        """Give the name of the key that belongs to some ids. Names of others that do begin with it."""
        return f"{self._prefix}:{self.contract}:{tagged(*ids)}"

    def _look(self, script: Script, home: str, *parts: str, args: Sequence[Argument] = ()) -> Any:
        """Run a script on some keys of one home."""
        return self._client.look(script, [home + part for part in parts], args)

    def _change(self, change: ChangeScript, home: str, *parts: str, args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes some keys of one home. `KEYS[1]` is its receipt."""
        keys = [home + part for part in (f":receipt:{uuid.uuid4().hex}", *parts)]
        return self._client.change(change, keys, args)


def parsed(kind: type[R], data: bytes, where: str, **ids: object) -> R:
    """Read a record, which must be that of `ids`.

    Raises:
        CorruptRecord: it is not.
    """
    record = kind.from_json(data, where)
    for name, expected in ids.items():
        found = getattr(record, name)
        if found != expected:
            raise CorruptRecord(where, f"its {name} is {found!r}, not {expected!r}")
    return record


def place(key: str, field: str | None = None) -> str:
    """Name a key, or a field of it, in an error."""
    return f"Redis key {key!r}" if field is None else f"field {field!r} of Redis key {key!r}"


def fingerprint(data: bytes) -> str:
    """Tell a text from others, as `redis.sha1hex` does in a script."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
