"""The runs contract, on Redis: a run, a hash of its steps, and a list of their ids in insertion order.

A hash has no order of its own.
"""

from __future__ import annotations

from typing import Any

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.runs import RunStore, WorkflowExecutionState, WorkflowStepState, no_run
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.base import threaded
from pytest_wfstate.stores.redis.base import RedisStore, fingerprint, parsed, place
from pytest_wfstate.stores.redis.lua_script import BATCH, ChangeScript, Script

_RUN, _STEPS, _ORDER = "", ":steps", ":order"

_CREATE = ChangeScript("""
    redis.call('SET', KEYS[2], ARGV[1])
    return 'created'
""")

# Only the run that was read is replaced.
_REPLACE = ChangeScript("""
    local run = redis.call('GET', KEYS[2])
    if not run or redis.sha1hex(run) ~= ARGV[1] then
        return false
    end
    redis.call('SET', KEYS[2], ARGV[2])
    return 'replaced'
""")

_DELETE = ChangeScript("""
    return redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4]) > 0 and 'deleted'
""")

_UPSERT = ChangeScript("""
    redis.call('LLEN', KEYS[3])
    if redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) == 1 then
        redis.call('RPUSH', KEYS[3], ARGV[1])
    end
    return 'kept'
""")

_LIST = Script(f"""
if redis.call('LLEN', KEYS[2]) > {BATCH} then
    return 'large'
end
return {{redis.call('LRANGE', KEYS[2], 0, -1), redis.call('HKEYS', KEYS[1]), redis.call('HVALS', KEYS[1])}}
""")


class RedisRunStore(RedisStore, RunStore):
    """Keeps run `run-1` at `wfstate:runs:{run-1}`, and its steps at keys with that prefix."""

    contract = "runs"

    @threaded
    def create_run(self, state: WorkflowExecutionState) -> None:
        state = WorkflowExecutionState.checked(state)
        self._change(_CREATE, self._of(state.run_task_id), _RUN, args=[state.to_json()])

    @threaded
    def get_run(self, run_task_id: str) -> WorkflowExecutionState | None:
        data = self._read(run_task_id)
        return None if data is None else self._parsed(data, run_task_id)

    @threaded
    def update_context(self, run_task_id: str, context: Any) -> None:
        while (data := self._read(run_task_id)) is not None:
            state = self._parsed(data, run_task_id)
            state.context = context
            state.updated_at = self._clock()
            if self._change(_REPLACE, self._of(run_task_id), _RUN, args=[fingerprint(data), state.to_json()]):
                return
        raise no_run(run_task_id)

    @threaded
    def delete_run(self, run_task_id: str) -> None:
        self._change(_DELETE, self._of(run_task_id), _RUN, _STEPS, _ORDER)

    @threaded
    def upsert_step(self, run_task_id: str, step: WorkflowStepState) -> None:
        home = self._of(run_task_id)
        step = WorkflowStepState.checked(step)
        check_id("step id", step.step_id)
        self._change(_UPSERT, home, _STEPS, _ORDER, args=[step.step_id, step.to_json()])

    @threaded
    def get_step(self, run_task_id: str, step_id: str) -> WorkflowStepState | None:
        key = self._of(run_task_id) + _STEPS
        data = self._get("HGET", key, check_id("step id", step_id))
        return None if data is None else _step(data, key, step_id)

    @threaded
    def list_steps(self, run_task_id: str) -> list[WorkflowStepState]:
        home = self._of(run_task_id)
        parts = self._query(_LIST, home, _STEPS, _ORDER)
        if parts == b"large":
            steps_, order_ = home + _STEPS, home + _ORDER
            parts = self._client.read_at_once(("LRANGE", order_, "0", "-1"), ("HKEYS", steps_), ("HVALS", steps_))
        order, ids, texts = parts
        steps = dict(zip(ids, texts, strict=True))
        if len(order) != len(steps) or steps.keys() != set(order):
            raise CorruptRecord(place(home + _ORDER), f"it does not hold the ids of the steps in {home + _STEPS!r}")
        return [_step(steps[step_id], home + _STEPS, step_id.decode(errors="replace")) for step_id in order]

    def _of(self, run_task_id: str) -> str:
        return self._home(check_id("run id", run_task_id))

    def _read(self, run_task_id: str) -> bytes | None:
        data: bytes | None = self._get("GET", self._of(run_task_id))
        return data

    def _parsed(self, data: bytes, run_task_id: str) -> WorkflowExecutionState:
        return parsed(WorkflowExecutionState, data, place(self._of(run_task_id)), run_task_id=run_task_id)


def _step(data: bytes, key: str, step_id: str) -> WorkflowStepState:
    return parsed(WorkflowStepState, data, place(key, step_id), step_id=step_id)
