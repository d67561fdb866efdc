"""The resume contract, in memory."""

from __future__ import annotations

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.stores.memory.base import MemoryStore


class MemoryResumeStore(MemoryStore, ResumeStore):
    """Keeps resume points in memory."""

    def __init__(self, *, clock: Clock = now) -> None:
        super().__init__(clock=clock)
        self._points: dict[str, str] = {}

    def save(self, point: ResumePoint) -> None:
        point = ResumePoint.checked(point)
        check_id("run id", point.run_id)
        with self._lock:
            self._points[point.run_id] = point.to_json()

    def load(self, run_id: str) -> ResumePoint | None:
        check_id("run id", run_id)
        with self._lock:
            text = self._points.get(run_id)
        return None if text is None else ResumePoint.from_json(text, run_id)

    def delete(self, run_id: str) -> None:
        check_id("run id", run_id)
        with self._lock:
            self._points.pop(run_id, None)
