"""The paused contract, in memory."""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Iterable
from typing import NamedTuple

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import PausedStore, PausedWorkflow, check_age
from pytest_wfstate.stores.memory.base import MemoryStore


class Claim(NamedTuple):
    """A run in flight: its record, the handle that claimed it, and when."""

    record: str
    owner: object
    at: datetime.datetime


class MemoryPausedStore(MemoryStore, PausedStore):
    """Keeps paused runs in memory."""

    def __init__(self, *, clock: Clock = now) -> None:
        super().__init__(clock=clock)
        self._paused: dict[str, str] = {}
        self._inflight: dict[str, Claim] = {}

    def _begin(self) -> None:
        self._owner = object()
        self._claimed: set[str] = set()

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        check_id("run id", paused.run_id)
        with self._lock:
            self._paused[paused.run_id] = paused.to_json()

    def load(self, run_id: str) -> PausedWorkflow | None:
        check_id("run id", run_id)
        with self._lock:
            text = self._paused.get(run_id)
        return None if text is None else PausedWorkflow.from_json(text, run_id)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        check_id("run id", run_id)
        with self._lock:
            text = self._paused.pop(run_id, None)
            if text is None:
                return None
            self._inflight[run_id] = Claim(text, self._owner, self._clock())
            self._claimed.add(run_id)
        return PausedWorkflow.from_json(text, run_id)

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return self.recover_some(list(self._inflight), older_than)

    def recover_some(self, run_ids: Iterable[str], older_than: float | None = None) -> int:
        """Recover only these runs: a recovery that dies may have reached any subset."""
        age = check_age(older_than)
        rearmed = 0
        with self._lock:
            moment = self._clock()
            for run_id in run_ids:
                claim = self._inflight.get(run_id)
                if claim is None or (moment - claim.at).total_seconds() < age:
                    continue
                del self._inflight[run_id]
                if run_id not in self._paused:
                    self._paused[run_id] = claim.record
                    rearmed += 1
        return rearmed

    def complete(self, run_id: str) -> None:
        check_id("run id", run_id)
        with self._lock:
            claim = self._inflight.get(run_id)
            if claim and (claim.owner is self._owner or run_id not in self._claimed):
                del self._inflight[run_id]

    def remove(self, run_id: str) -> None:
        check_id("run id", run_id)
        with self._lock:
            self._paused.pop(run_id, None)
            self._inflight.pop(run_id, None)

    def list(self) -> builtins.list[str]:
        with self._lock:
            return sorted(self._paused)
