"""The snapshots contract, on Redis: a hash of a run's snapshots, one of their times, and their super-steps in order.

A listing reads the times alone: it costs the same however large the snapshots are.

A super-step is written with 20 digits, the most it can have, so that as text it sorts as a number does: the scores of
a sorted set are exact only up to 2**53.
"""

from __future__ import annotations

import builtins

from pytest_wfstate.contracts.clock import milliseconds
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.snapshots import (
    CheckpointKey,
    CheckpointMeta,
    Edits,
    RunId,
    Snapshot,
    SnapshotStore,
    check_key,
    check_snapshot,
    new_run_id,
    no_source,
)
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.redis.base import RedisStore, parsed, place
from pytest_wfstate.stores.redis.lua_script import ChangeScript, Script

_SNAPSHOTS, _ORDER, _TIMES = "", ":order", ":times"

_SAVE = ChangeScript("""
    local step, snapshot, time = unpack(ARGV)
    redis.call('ZCARD', KEYS[3])
    redis.call('HLEN', KEYS[4])
    redis.call('HSET', KEYS[2], step, snapshot)
    redis.call('ZADD', KEYS[3], 0, step)
    redis.call('HSET', KEYS[4], step, time)
    return 'saved'
""")

_LATEST = Script("""
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0)[1]
return last and {last, redis.call('HGET', KEYS[1], last)}
""")


class RedisSnapshotStore(RedisStore, SnapshotStore):
    """Keeps the snapshots of workflow `wf` and run `run-1` at `wfstate:snapshots:{wf:run-1}`."""

    contract = "snapshots"

    @threaded
    def save(self, snapshot: Snapshot) -> None:
        snapshot = check_snapshot(snapshot)
        self._save(snapshot)

    @threaded
    def load(self, key: CheckpointKey) -> Snapshot | None:
        return self._load(check_key(key))

    @threaded
    def latest(self, workflow_id: str, run_id: RunId) -> Snapshot | None:
        home = self._of(workflow_id, run_id)
        latest = self._query(_LATEST, home, _SNAPSHOTS, _ORDER)
        if latest is None:
            return None
        step, data = latest
        if data is None:
            raise CorruptRecord(place(home), f"it lacks super-step {step.decode(errors='replace')}")
        return _snapshot(data, home, workflow_id, run_id, step)

    @threaded
    def list(self, workflow_id: str, run_id: RunId) -> builtins.list[CheckpointMeta]:
        home = self._of(workflow_id, run_id)
        times = self._get("HGETALL", home + _TIMES)
        return [_meta(times[step], home + _TIMES, workflow_id, run_id, step) for step in sorted(times)]

    @threaded
    def fork(self, source: CheckpointKey, edits: Edits = ()) -> RunId:
        key = check_key(source)
        edits = dict(edits)
        snapshot = self._load(key)
        if snapshot is None:
            raise no_source(key)
        # The fork may be on another node of a cluster. It need not be atomic: no other client knows its id yet.
        fork = snapshot.forked(new_run_id(), edits, milliseconds(self._clock()))
        self._save(fork)
        return fork.key.run_id

    def _of(self, workflow_id: str, run_id: RunId) -> str:
        return self._home(check_id("workflow id", workflow_id), check_id("run id", run_id))

    def _load(self, key: CheckpointKey) -> Snapshot | None:
        home, step = self._of(key.workflow_id, key.run_id), _digits(key.super_step)
        data = self._get("HGET", home, step)
        return None if data is None else _snapshot(data, home, key.workflow_id, key.run_id, step.encode())

    def _save(self, snapshot: Snapshot) -> None:
        key = snapshot.key
        args = [_digits(key.super_step), snapshot.to_json(), str(snapshot.timestamp_ms)]
        self._change(_SAVE, self._of(key.workflow_id, key.run_id), _SNAPSHOTS, _ORDER, _TIMES, args=args)


def _digits(super_step: int) -> str:
    return f"{super_step:020}"


def _meta(time: bytes, key: str, workflow_id: str, run_id: RunId, step: bytes) -> CheckpointMeta:
    try:
        return CheckpointMeta(workflow_id=workflow_id, run_id=run_id, super_step=int(step), timestamp_ms=int(time))
    except ValueError as error:
        where = place(key, step.decode(errors="replace"))
        raise CorruptRecord(where, f"it is {time!r}, not a number of milliseconds") from error


def _snapshot(data: bytes, home: str, workflow_id: str, run_id: RunId, step: bytes) -> Snapshot:
    where = place(home, step.decode(errors="replace"))
    try:
        key = CheckpointKey(workflow_id=workflow_id, run_id=run_id, super_step=int(step))
    except ValueError as error:
        raise CorruptRecord(where, "the field is not a super-step") from error
    return parsed(Snapshot, data, where, key=key)
