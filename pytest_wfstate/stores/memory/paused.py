"""The paused contract, in memory."""

from __future__ import annotations

import builtins
import datetime
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import FencedPausedStore, PausedWorkflow, check_age, no_token
from pytest_wfstate.stores.memory.base import MemoryStore


class Claim(NamedTuple):
    """A run in flight: its record, the handle that claimed it, when it did or renewed it, and its token."""

    record: str
    owner: object
    at: datetime.datetime
    token: str | None = None
    """None until it is asked for: before that nobody can have it."""


class Run(NamedTuple):
    """A run that is paused, in flight, or both."""

    paused: str | None = None
    claim: Claim | None = None


class MemoryPausedStore(MemoryStore, FencedPausedStore):
    """Keeps paused runs in memory.

    Every change is one assignment, so an exception raised by a signal leaves the run as it was or as it should be.
    """

    def __init__(self, *, clock: Clock = now, new_token: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        super().__init__(clock=clock)
        self._new_token = new_token
        self._runs: dict[str, Run] = {}

    def _begin(self) -> None:
        self._owner = object()
        self._claimed: set[str] = set()
        self._tokens: dict[str, str | None] = {}  # of claims that this handle has not finished, even if they are lost

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        check_id("run id", paused.run_id)
        with self._lock:
            self._runs[paused.run_id] = self._run(paused.run_id)._replace(paused=paused.to_json())

    def load(self, run_id: str) -> PausedWorkflow | None:
        check_id("run id", run_id)
        with self._lock:
            text = self._run(run_id).paused
        return None if text is None else PausedWorkflow.from_json(text, run_id)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        check_id("run id", run_id)
        with self._lock:
            text = self._run(run_id).paused
            if text is None:
                return None
            self._claimed.add(run_id)
            self._tokens.setdefault(run_id, None)
            self._runs[run_id] = Run(claim=Claim(text, self._owner, self._clock()))
            self._tokens[run_id] = None
        return PausedWorkflow.from_json(text, run_id)

    def token(self, run_id: str) -> str:
        check_id("run id", run_id)
        with self._lock:
            run = self._run(run_id)
            if run.claim and run.claim.owner is self._owner:
                token = run.claim.token or self._new_token()
                self._runs[run_id] = run._replace(claim=run.claim._replace(token=token))
            elif run_id in self._tokens:
                token = self._tokens[run_id] or self._new_token()
            else:
                raise no_token(run_id)
            self._tokens[run_id] = token
            return token

    def recover_orphaned(self, older_than: float | None = None) -> int:
        return self.recover_some(list(self._runs), older_than)

    def recover_some(self, run_ids: Iterable[str], older_than: float | None = None) -> int:
        """Recover only these runs: a recovery that dies may have reached any subset."""
        age = check_age(older_than)
        rearmed = 0
        with self._lock:
            moment = self._clock()
            for run_id in run_ids:
                paused, claim = self._run(run_id)
                if claim is None or (moment - claim.at).total_seconds() < age:
                    continue
                if paused is None:
                    self._runs[run_id] = Run(paused=claim.record)
                    rearmed += 1
                else:
                    self._runs[run_id] = Run(paused=paused)
        return rearmed

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        check_id("run id", run_id)
        if token is not None:
            return self._complete_with(run_id, check_id("token", token))
        with self._lock:
            claim = self._run(run_id).claim
            self._tokens.pop(run_id, None)
            if claim and (claim.owner is self._owner or run_id not in self._claimed):
                self._release(run_id)
        return None

    def _complete_with(self, run_id: str, token: str) -> bool:
        with self._lock:
            claim = self._run(run_id).claim
            matches = claim is not None and claim.token == token
            if self._tokens.get(run_id) == token:
                del self._tokens[run_id]
            if matches:
                self._release(run_id)
        return matches

    def renew(self, run_id: str, token: str) -> bool:
        check_id("run id", run_id)
        check_id("token", token)
        with self._lock:
            run = self._run(run_id)
            if run.claim is None or run.claim.token != token:
                return False
            self._runs[run_id] = run._replace(claim=run.claim._replace(at=self._clock()))
        return True

    def remove(self, run_id: str) -> None:
        check_id("run id", run_id)
        with self._lock:
            self._tokens.pop(run_id, None)
            self._runs.pop(run_id, None)

    def list(self) -> builtins.list[str]:
        with self._lock:
            return sorted(run_id for run_id, run in self._runs.items() if run.paused is not None)

    def _run(self, run_id: str) -> Run:
        return self._runs.get(run_id, Run())

    def _release(self, run_id: str) -> None:
        paused = self._run(run_id).paused
        if paused is None:
            del self._runs[run_id]
        else:
            self._runs[run_id] = Run(paused=paused)
