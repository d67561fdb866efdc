"""The lock contract, in memory."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.lock import LockStore, check_ttl
from pytest_wfstate.stores.memory.base import MemoryStore


class Holder(NamedTuple):
    """The last holder of a lock: its token, and until when it holds the lock; None once that is released."""

    token: Any
    until: datetime.datetime | None


def next_token(last: int | None) -> int:
    """Return the token after the last one of a lock."""
    return 1 if last is None else last + 1


class MemoryLockStore(MemoryStore, LockStore):
    """Keeps locks in memory. The last holder of each is kept for its token."""

    def __init__(self, *, clock: Clock = now, new_token: Callable[[Any], Any] = next_token) -> None:
        super().__init__(clock=clock)
        self._new_token = new_token
        self._holders: dict[str, Holder] = {}

    def acquire(self, name: str, ttl: float) -> Any:
        check_id("lock name", name)
        time = check_ttl(ttl)
        with self._lock:
            moment, last = self._clock(), self._holders.get(name)
            if _is_held(last, moment):
                return None
            token = self._new_token(last.token if last else None)
            self._holders[name] = Holder(token, moment + time)
        return token

    def renew(self, name: str, token: Any, ttl: float) -> bool:
        time = check_ttl(ttl)
        with self._lock:
            moment = self._clock()
            matches = self._matches(name, token, moment)
            if matches:
                self._holders[name] = Holder(token, moment + time)
        return matches

    def release(self, name: str, token: Any) -> bool:
        with self._lock:
            matches = self._matches(name, token, self._clock())
            if matches:
                self._holders[name] = Holder(token, None)
        return matches

    def held(self, name: str) -> bool:
        check_id("lock name", name)
        with self._lock:
            return _is_held(self._holders.get(name), self._clock())

    def _matches(self, name: str, token: Any, moment: datetime.datetime) -> bool:
        check_id("lock name", name)
        holder = self._holders.get(name)
        return (
            holder is not None
            and _is_held(holder, moment)
            and type(token) is type(holder.token)
            and (token == holder.token)
        )


def _is_held(holder: Holder | None, moment: datetime.datetime) -> bool:
    return holder is not None and holder.until is not None and moment < holder.until
