"""The paused contract, on Redis: three hashes, for paused runs, for runs in flight, and for the tokens of their claims.

A hash lists its own fields, so there is no index that could disagree with it.
"""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import FencedPausedStore, PausedWorkflow, check_age
from pytest_wfstate.stores.own_claims import OwnClaims
from pytest_wfstate.stores.redis.base import RedisStore, fingerprint, parsed, place
from pytest_wfstate.stores.redis.client import Argument
from pytest_wfstate.stores.redis.lua_script import BATCH, ChangeScript

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

# It recovers all runs, or those that are named, if they are in flight. A claim whose time is lost counts as expired.
_RECOVER = ChangeScript(f"""
    local now, age = tonumber(ARGV[1]), tonumber(ARGV[2])
    local runs = {{unpack(ARGV, 3, #ARGV - 1)}}
    local rearmed, dropped = 0, 0
    redis.call('HLEN', KEYS[2])
    redis.call('HLEN', KEYS[4])
    if #runs == 0 and redis.call('HLEN', KEYS[3]) > {BATCH} then
        return 'many'
    elseif #runs == 0 then
        runs = redis.call('HKEYS', KEYS[3])
    end
    for _, run in ipairs(runs) do
        local claim = redis.call('HGET', KEYS[4], run)
        local at = claim and tonumber(string.match(claim, ' (%-?%d+)$'))
        local is_expired = not at or (now - at) / 1000000 >= age
        if is_expired and redis.call('HEXISTS', KEYS[3], run) == 1 then
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

# Of the claim only its token is compared, with each of those that may be the caller's.
_HAS_TOKEN = """
    local run, any, now = unpack(ARGV, 1, 3)
    local claim = redis.call('HGET', KEYS[3], run)
    local token = claim and string.match(claim, '^(.*) ')
    local is_own = any == 'any'
    for place = 4, #ARGV - 1 do
        is_own = is_own or ARGV[place] == token
    end
    if not is_own then
        return false
    end
"""

_COMPLETE = ChangeScript(f"""{_HAS_TOKEN}
    local found = redis.call('HDEL', KEYS[2], run)
    redis.call('HDEL', KEYS[3], run)
    return found == 1 and 'completed'
""")

_RENEW = ChangeScript(f"""{_HAS_TOKEN}
    if redis.call('HEXISTS', KEYS[2], run) == 0 then
        return false
    end
    redis.call('HSET', KEYS[3], run, token .. ' ' .. now)
    return 'renewed'
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


class RedisPausedStore(RedisStore, FencedPausedStore):
    """Keeps run `run-1` in the hash `{wfstate:paused}:paused`, and while it is claimed in `{wfstate:paused}:inflight`.

    All keys share one hash tag, so they are on one node of a cluster: use several prefixes to use several nodes.
    """

    contract = "paused"

    def __init__(
        self,
        url_or_client: str | redis.Redis | redis.RedisCluster,
        prefix: str = "wfstate",
        *,
        wait_replicas: int = 0,
        clock: Clock = now,
    ) -> None:
        self._base = f"{{{prefix}:paused}}"
        super().__init__(url_or_client, prefix, wait_replicas=wait_replicas, clock=clock)
        self._claims = OwnClaims()

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

    def token(self, run_id: str) -> str:
        check_id("run id", run_id)
        return self._claims.token(run_id, lambda: self._present_token(run_id))

    def _present_token(self, run_id: str) -> str | None:
        claim: bytes = self._get("HGET", self._base + _CLAIMS, run_id) or b""
        return claim.rpartition(b" ")[0].decode(errors="replace")

    def recover_orphaned(self, older_than: float | None = None) -> int:
        age = max(-_LONG, min(_LONG, check_age(older_than)))
        args: list[Argument] = [self._microseconds(), repr(float(age))]
        recovered = self._recover(args)
        if recovered != b"many":
            return int(recovered or 0)
        # A recovery is atomic for each run, and need not be for all of them.
        runs: list[bytes] = self._get("HKEYS", self._base + _INFLIGHT)
        batches = [runs[first : first + BATCH] for first in range(0, len(runs), BATCH)]
        return sum(int(self._recover([*args, *batch]) or 0) for batch in batches)

    def _recover(self, args: Sequence[Argument]) -> Any:
        return self._change(_RECOVER, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=args)

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        check_id("run id", run_id)
        needed = self._claims.needed(run_id) if token is None else (check_id("token", token),)
        args: list[Argument] = [run_id, "any", ""] if needed is None else [run_id, "own", "", *needed]
        ended = self._change(_COMPLETE, self._base, _INFLIGHT, _CLAIMS, args=args)
        self._claims.finished(run_id, needed or ())
        return None if token is None else bool(ended)

    def renew(self, run_id: str, token: str) -> bool:
        args: list[Argument] = [check_id("run id", run_id), "own", self._microseconds(), check_id("token", token)]
        return bool(self._change(_RENEW, self._base, _INFLIGHT, _CLAIMS, args=args))

    def remove(self, run_id: str) -> None:
        check_id("run id", run_id)
        own = self._claims.tokens(run_id)
        self._change(_REMOVE, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=[run_id])
        self._claims.finished(run_id, own)

    def list(self) -> builtins.list[str]:
        return sorted(run_id.decode(errors="replace") for run_id in self._get("HKEYS", self._base + _PAUSED))

    def _marker(self) -> str:
        return f"{self._base}:format"

    def _take(self, run_id: str, read: str) -> bool:
        """Claim the run if its record is still the one that was read."""
        token, before = self._claims.new_token(), self._claims.tokens(run_id)
        args = [run_id, read, f"{token} {self._microseconds()}"]
        try:
            is_taken = bool(self._change(_CLAIM, self._base, _PAUSED, _INFLIGHT, _CLAIMS, args=args))
            if is_taken:
                self._claims.made(run_id, token, instead_of=before)
        except BaseException as error:
            if not self._client.sent_nothing(error):
                self._claims.made(run_id, token)  # it may be ours, and we must not free another's claim
            raise
        return is_taken

    def _read(self, run_id: str) -> bytes | None:
        data: bytes | None = self._get("HGET", self._base + _PAUSED, check_id("run id", run_id))
        return data

    def _parsed(self, data: bytes, run_id: str) -> PausedWorkflow:
        return parsed(PausedWorkflow, data, place(self._base + _PAUSED, run_id), run_id=run_id)

    def _microseconds(self) -> int:
        return (self._clock() - _EPOCH) // datetime.timedelta(microseconds=1)
