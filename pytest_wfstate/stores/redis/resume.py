"""The resume contract, on Redis: one key per run."""

from __future__ import annotations

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.stores.redis.base import RedisStore, parsed, place
from pytest_wfstate.stores.redis.lua_script import ChangeScript

_SAVE = ChangeScript("""
    redis.call('SET', KEYS[2], ARGV[1])
    return 'saved'
""")

_DELETE = ChangeScript("""
    return redis.call('DEL', KEYS[2]) == 1 and 'deleted'
""")


class RedisResumeStore(RedisStore, ResumeStore):
    """Keeps the resume point of run `run-1` at `wfstate:resume:{run-1}`."""

    contract = "resume"

    def save(self, point: ResumePoint) -> None:
        point = ResumePoint.checked(point)
        self._change(_SAVE, self._key(point.run_id), "", args=[point.to_json()])

    def load(self, run_id: str) -> ResumePoint | None:
        key = self._key(run_id)
        data = self._get("GET", key)
        return None if data is None else parsed(ResumePoint, data, place(key), run_id=run_id)

    def delete(self, run_id: str) -> None:
        self._change(_DELETE, self._key(run_id), "")

    def _key(self, run_id: str) -> str:
        return self._home(check_id("run id", run_id))
