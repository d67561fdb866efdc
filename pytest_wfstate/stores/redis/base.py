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
from pytest_wfstate.stores.redis.format import FormatMarker
from pytest_wfstate.stores.redis.keys import check_prefix, tagged
from pytest_wfstate.stores.redis.lua_script import ChangeScript, Script

if TYPE_CHECKING:
    import redis

R = TypeVar("R", bound=Record)


class RedisStore(Store):
    """A store on a Redis server, which is given as a URL or a client; its keys begin with `prefix`.

    A client that was passed in is not closed with the store. A change is acknowledged once `wait_replicas` replicas
    have it. `clock` stands in for the time of day.
    """

    contract: ClassVar[str]

    def __init__(
        self,
        url_or_client: str | redis.Redis | redis.RedisCluster,
        prefix: str = "wfstate",
        *,
        wait_replicas: int = 0,
        clock: Clock = now,
    ) -> None:
        self._client = RedisClient(url_or_client, wait_replicas=wait_replicas)
        self._prefix = check_prefix(prefix)
        self._clock = clock
        self._format = FormatMarker(self.contract, self._marker())

    def close(self) -> None:
        super().close()
        self._client.close()

    def _home(self, *ids: str) -> str:
        """Return the first key of some ids. Their other keys begin with it."""
        return f"{self._prefix}:{self.contract}:{tagged(*ids)}"

    def _marker(self) -> str:
        """Return the key of the marker that says which format the keys have."""
        return f"{self._prefix}:{self.contract}:format"

    def _get(self, *command: str) -> Any:
        """Run a command that only reads; its second word is the key."""
        self._format.check(self._client, changes=False)
        return self._client.get(*command)

    def _query(self, script: Script, home: str, *parts: str, args: Sequence[Argument] = ()) -> Any:
        """Run a script that only reads, on some keys of one home."""
        self._format.check(self._client, changes=False)
        return self._client.query(script, [home + part for part in parts], args)

    def _change(self, change: ChangeScript, home: str, *parts: str, args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes some keys of one home. `KEYS[1]` is its receipt."""
        self._format.check(self._client, changes=True)
        keys = [home + part for part in (f":receipt:{uuid.uuid4().hex}", *parts)]
        return self._client.change(change, keys, args)


def parsed(kind: type[R], data: bytes, where: str, **ids: object) -> R:
    """Parse a record, which must belong to `ids`.

    Raises:
        CorruptRecord: it does not.
    """
    record = kind.from_json(data, where)
    for name, expected in ids.items():
        actual = getattr(record, name)
        if actual != expected:
            raise CorruptRecord(where, f"its {name} is {actual!r}, not {expected!r}")
    return record


def place(key: str, field: str | None = None) -> str:
    """Return the name of a key, or of one of its fields, for an error."""
    return f"Redis key {key!r}" if field is None else f"field {field!r} of Redis key {key!r}"


def fingerprint(data: bytes) -> str:
    """Return a digest of a text, the same as `redis.sha1hex` in a script."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
