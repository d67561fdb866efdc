"""The effects contract, on Redis: the log of a checkpoint is a list, the completed ids are a set.

So a mark adds an element to each, and costs the same however many there are.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from pytest_wfstate.contracts.clock import seconds
from pytest_wfstate.contracts.effects import EffectStore, SideEffectRecord, WorkflowCheckpoint, check_effect
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.redis.base import RedisStore, fingerprint, parsed, place
from pytest_wfstate.stores.redis.client import Argument
from pytest_wfstate.stores.redis.lua_script import BATCH, ChangeScript, Script

# The first is a hash: the checkpoint as it was saved, without its log and ids; the fingerprint of that, by which a mark
# knows that it is readable; and the two fields that marks change.
_PARTS = ("", ":log", ":done")

_BATCH_LENGTH = 200_000  # characters in one script, unless one text is longer
_STAGED = 60_000  # milliseconds for which the server keeps batches: a client sends many in that time

_HEAD = ("checkpoint", "fingerprint", "step_index", "updated_at")

_LOAD = Script(f"""
if redis.call('LLEN', KEYS[2]) + redis.call('SCARD', KEYS[3]) > {BATCH} then
    return 'large'
end
local head = redis.call('HMGET', KEYS[1], unpack(ARGV))
local log, ids = redis.call('LRANGE', KEYS[2], 0, -1), redis.call('SMEMBERS', KEYS[3])
return {{redis.call('EXISTS', unpack(KEYS)), head, log, ids}}
""")

_PUT_PARTS = """
    for _, effect in ipairs(cjson.decode(log)) do
        redis.call('RPUSH', KEYS[3], effect)
    end
    for _, id in ipairs(cjson.decode(ids)) do
        redis.call('SADD', KEYS[4], id)
    end
"""

_PUT_HEAD = """
    redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
    redis.call('HSET', KEYS[2], 'checkpoint', checkpoint, 'fingerprint', redis.sha1hex(checkpoint))
    redis.call('HSET', KEYS[2], 'step_index', step_index, 'updated_at', updated_at)
"""

_SAVE = ChangeScript(f"""
    local checkpoint, step_index, updated_at, log, ids = unpack(ARGV)
{_PUT_HEAD}{_PUT_PARTS}
    return 'saved'
""")

# A large checkpoint comes in several batches, so that the server answers others in between: log and ids go to keys of
# their own first, which expire if their client dies. Only the last script changes the checkpoint.
_STAGE = ChangeScript(f"""
    local log, ids, expiry = unpack(ARGV)
{_PUT_PARTS}
    redis.call('PEXPIRE', KEYS[3], expiry)
    redis.call('PEXPIRE', KEYS[4], expiry)
    return 'staged'
""")

_SAVE_STAGED = ChangeScript(f"""
    local checkpoint, step_index, updated_at, effects, ids = unpack(ARGV)
    if redis.call('LLEN', KEYS[5]) ~= tonumber(effects) or redis.call('SCARD', KEYS[6]) ~= tonumber(ids) then
        return 'expired'
    end
{_PUT_HEAD}
    for staged = 5, 6 do
        if redis.call('PERSIST', KEYS[staged]) == 1 then
            redis.call('RENAME', KEYS[staged], KEYS[staged - 2])
        end
    end
    return 'saved'
""")

_MARK = ChangeScript("""
    local id, effect, at, blank = unpack(ARGV)
    redis.call('LLEN', KEYS[3])
    local is_done = redis.call('SISMEMBER', KEYS[4], id) == 1
    local head = redis.call('HMGET', KEYS[2], 'checkpoint', 'fingerprint', 'step_index')
    local step_index = tonumber(head[3] or nil)
    if redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4]) == 0 then
        redis.call('HSET', KEYS[2], 'checkpoint', blank, 'fingerprint', redis.sha1hex(blank))
        step_index = 0
    elseif not step_index or not head[1] or redis.sha1hex(head[1]) ~= head[2] then
        return 'corrupt'
    elseif is_done then
        return false
    elseif step_index >= 4294967295 then
        return 'full'
    end
    redis.call('HSET', KEYS[2], 'step_index', string.format('%.0f', step_index + 1), 'updated_at', at)
    redis.call('RPUSH', KEYS[3], effect)
    redis.call('SADD', KEYS[4], id)
    return 'marked'
""")

_DELETE = ChangeScript("""
    return redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4]) > 0 and 'deleted'
""")


class RedisEffectStore(RedisStore, EffectStore):
    """Keeps the checkpoint of task `task-1` at `wfstate:effects:{task-1}`, its log and ids at keys with that prefix."""

    contract = "effects"

    @threaded
    def save_checkpoint(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint = WorkflowCheckpoint.checked(checkpoint)
        home = self._home(check_id("task id", checkpoint.task_id))
        log = [effect.to_json() for effect in checkpoint.side_effects_log]
        ids = list(checkpoint.completed_tool_ids)
        head: list[Argument] = [_bare(checkpoint), checkpoint.step_index, checkpoint.updated_at]
        if len(log) + len(ids) <= BATCH and sum(map(len, log)) + sum(map(len, ids)) <= _BATCH_LENGTH:
            self._change(_SAVE, home, *_PARTS, args=[*head, _texts(log), _texts(ids)])
        else:
            while self._save_in_batches(home, head, log, ids) == b"expired":
                pass

    def _save_in_batches(self, home: str, head: list[Argument], log: list[str], ids: list[str]) -> Any:
        staged = [f":staged:{uuid.uuid4().hex}{part}" for part in _PARTS]
        for batch in _batches(log):
            self._change(_STAGE, home, *staged, args=[_texts(batch), "[]", _STAGED])
        for batch in _batches(ids):
            self._change(_STAGE, home, *staged, args=["[]", _texts(batch), _STAGED])
        return self._change(_SAVE_STAGED, home, *_PARTS, *staged[1:], args=[*head, len(log), len(ids)])

    @threaded
    def load_checkpoint(self, task_id: str) -> WorkflowCheckpoint | None:
        return self._load(check_id("task id", task_id))

    @threaded
    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: SideEffectRecord) -> None:
        home = self._home(check_id("task id", task_id))
        effect = check_effect(tool_use_id, effect)
        at = seconds(self._clock())
        args: list[Argument] = [tool_use_id, effect.to_json(), at, _bare(WorkflowCheckpoint.new(task_id, "unknown"))]
        while (reply := self._change(_MARK, home, *_PARTS, args=args)) == b"full":
            checkpoint = self._load(task_id)
            if checkpoint is not None:  # else it was just deleted: try again
                checkpoint.mark(effect, at=at)  # raises, as it does in every store
        if reply == b"corrupt":
            raise CorruptRecord(place(home), "it does not hold the checkpoint that was saved")

    @threaded
    def delete_checkpoint(self, task_id: str) -> None:
        self._change(_DELETE, self._home(check_id("task id", task_id)), *_PARTS)

    def _load(self, task_id: str) -> WorkflowCheckpoint | None:
        home = self._home(task_id)
        parts = self._query(_LOAD, home, *_PARTS, args=_HEAD)
        if parts == b"large":
            parts = self._load_large(home)
        found, (bare, saved_as, step_index, updated_at), log, ids = parts
        if not found:
            return None
        if bare is None or fingerprint(bare).encode() != saved_as:
            raise CorruptRecord(place(home), "it does not hold the checkpoint that was saved")
        checkpoint = parsed(WorkflowCheckpoint, bare, place(home), task_id=task_id)
        checkpoint.side_effects_log = [SideEffectRecord.from_json(text, place(f"{home}:log")) for text in log]
        try:
            checkpoint.completed_tool_ids = {id_.decode() for id_ in ids}
            checkpoint.step_index, checkpoint.updated_at = int(step_index or b""), int(updated_at or b"")
        except ValueError as error:
            raise CorruptRecord(place(home), f"one of its fields or ids is invalid: {error}") from error
        return checkpoint

    def _load_large(self, home: str) -> Any:
        keys = [home + part for part in _PARTS]
        log, ids = ("LRANGE", keys[1], "0", "-1"), ("SMEMBERS", keys[2])
        return self._client.read_at_once(("EXISTS", *keys), ("HMGET", keys[0], *_HEAD), log, ids)


def _bare(checkpoint: WorkflowCheckpoint) -> str:
    """Return a checkpoint as JSON, without the parts that have keys of their own."""
    return checkpoint.model_copy(update={"completed_tool_ids": set(), "side_effects_log": []}).to_json()


def _batches(texts: list[str]) -> Iterator[list[str]]:
    """Divide texts into batches that are small, except for a text that alone is large."""
    batch: list[str] = []
    length = 0
    for text in texts:
        if batch and (len(batch) == BATCH or length + len(text) > _BATCH_LENGTH):
            yield batch
            batch, length = [], 0
        batch.append(text)
        length += len(text)
    if batch:
        yield batch


def _texts(texts: list[str]) -> str:
    """Return texts as one argument: a server accepts no more than a million of them."""
    return json.dumps(texts, ensure_ascii=False)
