"""The paused contract, on Redis: three hashes, for paused runs, for runs in flight, and for their owners.

A hash lists its own fields, so there is no index that could disagree with it.
"""

from __future__ import annotations

import builtins
import datetime
import os
import uuid
from typing import TYPE_CHECKING

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import PausedStore, PausedWorkflow, check_age
from pytest_wfstate.stores.redis.base import RedisStore, fingerprint, parsed, place
from pytest_wfstate.stores.redis.client import Argument
from pytest_wfstate.stores.redis.lua_script import ChangeScript

if TYPE_CHECKING:
    import redis

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LONG = 1e300  # seconds: longer than any claim

_SAVE = ChangeScript("""
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    return 'saved'
""")

# Only the record that was read is claimed: an unreadable one stays paused.
_CLAIM = ChangeScript("""
    local run, read, claim = unpack(ARGV)
    local record = redis.call('HGET', KEYS[2], run)
    redis.call('HLEN', KEYS[3])
    redis.call('HLEN', KEYS[4])
    if not record or redis.sha1hex(record) ~= read then
        return false
    end
    redis.call('HDEL', KEYS[2], run)
    redis.call('HSET', KEYS[3], run, record)
    redis.call('HSET', KEYS[4], run, claim)
    return 'claimed'
""")

# A claim whose time is lost counts as expired.
_RECOVER = ChangeScript("""
    local now, age = tonumber(ARGV[1]), tonumber(ARGV[2])
    local rearmed, dropped = 0, 0
    redis.call('HLEN', KEYS[2])
    redis.call('HLEN', KEYS[4])
    for _, run in ipairs(redis.call('HKEYS', KEYS[3])) do
        local claim = redis.call('HGET', KEYS[4], run)
        local at = claim and tonumber(string.match(claim, ' (%-?%d+)$'))
        if not at or (now - at) / 1000000 >= age then
            if redis.call('HEXISTS', KEYS[2], run) == 0 then
                redis.call('HSET', KEYS[2], run, redis.call('HGET', KEYS[3], run))
                rearmed = rearmed + 1
            end
            redis.call('HDEL', KEYS[3], run)
            redis.call('HDEL', KEYS[4], run)
            dropped = dropped + 1
        end
    end
    return dropped > 0 and tostring(rearmed)
""")

# A caller that never claimed the run, and so names no owner, is a restarted worker that finishes up.
_COMPLETE = ChangeScript("""
    local run, owner = ARGV[1], ARGV[2]
    local claim = redis.call('HGET', KEYS[3], run)
    if owner ~= '' and not (claim and string.match(claim, '^%w+') == owner) then
        return false
    end
    local found = redis.call('HDEL', KEYS[2], run)
    redis.call('HDEL', KEYS[3], run)
    return found == 1 and 'completed'
""")

_REMOVE = ChangeScript("""
    local found = 0
    redis.call('HLEN', KEYS[3])
    redis.call('HLEN', KEYS[4])
    for key = 2, 4 do
        found = found + redis.call('HDEL', KEYS[key], ARGV[1])
    end
    return found > 0 and 'removed'
""")

_PAUSED, _INFLIGHT, _CLAIMS = ":paused", ":inflight", ":claims"


class RedisPausedStore(RedisStore, PausedStore):
    """Keeps run `run-1` in the hash `{wfstate:paused}:paused`, and while it is claimed in `{wfstate:paused}:inflight`.

    All keys share one hash tag, so they are on one node of a cluster: use several prefixes to use several nodes.
    """

    contract = "paused"

    def __init__(
        self, url_or_client: str | redis.Redis | redis.RedisCluster, prefix: str = "wfstate", *, clock: Clock = now
    ) -> None:
        super().__init__(url_or_client, prefix, clock=clock)
        self._base = f"{{{prefix}:paused}}"
        self._handle = uuid.uuid4().hex
        self._claimed: dict[str, str] = {}  # the owner under which this handle claimed each run, or may have

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        check_id("run id", paused.run_id)
        self._change(_SAVE, self._base, _PAUSED, args=[paused.run_id, paused.to_json()])

    def load(self, run_id: str) -> PausedWorkflow | None:
        data = self._read(run_id)
        return None if data is None else self._parsed(data, run_id)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        while (data := self._read(run_id)) is not None:
            paused = self._parsed(data, run_id)  # before it is moved
            if self._take(run_id, fingerprint(data)):
                return paused
        return None

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = max(-_LONG, min(_LONG, check_age(older_than)))
        args: list[Argument] = [self._microseconds(), repr(float(age))]
        return int(self._change(_RECOVER, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=args) or 0)

    def complete(self, run_id: str) -> None:
        check_id("run id", run_id)
        self._change(_COMPLETE, self._base, _INFLIGHT, _CLAIMS, args=[run_id, self._claimed.get(run_id, "")])

    def remove(self, run_id: str) -> None:
        check_id("run id", run_id)
        self._change(_REMOVE, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=[run_id])

    def list(self) -> builtins.list[str]:
        return sorted(run_id.decode(errors="replace") for run_id in self._client.get("HKEYS", self._base + _PAUSED))

    def _take(self, run_id: str, read: str) -> bool:
        """Claim the run if its record is still the one that was read."""
        owner = f"{self._handle}x{os.getpid()}"  # workers forked from one handle are not the same owner
        args = [run_id, read, f"{owner} {self._microseconds()}"]
        try:
            claimed = self._change(_CLAIM, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=args)
        except BaseException as error:
            if not self._client.sent_nothing(error):
                self._claimed[run_id] = owner  # it may be ours, and we must not free another's claim
            raise
        if claimed:
            self._claimed[run_id] = owner
        return bool(claimed)

    def _read(self, run_id: str) -> bytes | None:
        data: bytes | None = self._client.get("HGET", self._base + _PAUSED, check_id("run id", run_id))
        return data

    def _parsed(self, data: bytes, run_id: str) -> PausedWorkflow:
        return parsed(PausedWorkflow, data, place(self._base + _PAUSED, run_id), run_id=run_id)

    def _microseconds(self) -> int:
        return (self._clock() - _EPOCH) // datetime.timedelta(microseconds=1)
